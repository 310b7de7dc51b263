// layers/score_head.h: the head of a reward model: numbers for a token.
#pragma once
#include <ATen/core/Tensor.h>

#include "layers/linear.h"
#include "layers/module.h"
#include "parallel/region.h"

namespace danlu::layers {

struct ScoreHead {
  Linear linear;  ///< [L, H], all of it on every rank; undefined: the model has none
  parallel::Region region{parallel::Group::alone(), false};

  void visit(Visitor& visitor) { linear.visit(visitor); }
  /// The numbers of tokens, [M, L], on every rank of the tensor axis: f64 of models in f64, else
  /// f32, in which they are computed too. hidden_nH: as the last layer gives them. rows_M: int64
  /// [M] on the host, of all ranks' rows.
  at::Tensor forward(const at::Tensor& hidden_nH, const at::Tensor& rows_M) const;
};

/// The hidden states of tokens, [M, H], as ScoreHead::forward reads them: on every rank of the
/// tensor axis, f64 of models in f64, else f32.
at::Tensor vectors_of_rows(const at::Tensor& hidden_nH, const at::Tensor& rows_M,
                           const parallel::Region& region);

}  // namespace danlu::layers
