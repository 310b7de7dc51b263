// layers/prediction.h: a layer after the last one that predicts one token further than what it
// reads (multi-token prediction, DeepSeek-V3, arXiv:2412.19437 §2.2).
#pragma once
#include <ATen/core/Tensor.h>

#include <memory>

#include "layers/head.h"
#include "layers/linear.h"
#include "layers/module.h"
#include "layers/norm.h"
#include "layers/recompute.h"
#include "parallel/region.h"

namespace danlu::layers {

struct Prediction {
  Embedding embedding;  ///< the model's table
  Norm token_norm, hidden_norm;
  Linear join;                   ///< [H, 2H]: columns of the token, then of the hidden state
  std::unique_ptr<Block> block;  ///< a layer as the model's last
  Norm norm;
  Head head;  ///< with the model's matrix
  parallel::Region region{parallel::Group::alone(), false};

  void visit(Visitor& visitor);
  /// What the next of these layers reads, and norm and head: [N, H] as hidden_NH, under sequence
  /// parallelism this rank's rows. hidden_NH: the model's last hidden states, or what the layer
  /// before gave. next_ids_N: int64, for each place the token that it knows beside them. again: of
  /// the block. is_recomputed: the block keeps its input alone.
  at::Tensor forward(const at::Tensor& hidden_NH, const at::Tensor& next_ids_N,
                     const std::shared_ptr<const Pass>& pass, const Again& again,
                     bool is_recomputed) const;

 private:
  at::Tensor joined(const at::Tensor& hidden_NH, const at::Tensor& next_ids_N,
                    const Pass& pass) const;
};

}  // namespace danlu::layers
