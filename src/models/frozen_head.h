// models/frozen_head.h: the head of a model that is not trained, used while another model's passes
// go on.
#pragma once
#include <ATen/core/Tensor.h>

#include <memory>

#include "models/causal_lm.h"
#include "ops/head_divergence.h"

namespace danlu::models {

/// Asks nothing of other ranks' memory: where ranks share parameters, it has a copy of the head.
class FrozenHead {
 public:
  /// `model` outlives it, and does not change. On stages without a head there is none. Collective
  /// where parameters are shared.
  explicit FrozenHead(const CausalLM& model);
  ~FrozenHead();

  /// Rows rows_M (int64 [M] on the host) of what model.forward() gave on the last stage: [M, H].
  /// Collective under sequence parallelism.
  at::Tensor rows(const at::Tensor& hidden_nH, const at::Tensor& rows_M) const;
  /// Logits [M, columns.count] of such rows, f32 (f64 for f64), fewer columns where this
  /// vocabulary ends before. Collective on the tensor axis if these are not this rank's columns.
  at::Tensor logits(const at::Tensor& rows_MH, const ops::HeadColumns& columns) const;

 private:
  struct State;
  std::unique_ptr<State> state_;  ///< nullptr: the stage has no head
};

}  // namespace danlu::models
