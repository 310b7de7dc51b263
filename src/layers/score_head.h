// layers/score_head.h: the head of a reward model: numbers for a token.
#pragma once
#include <ATen/core/Tensor.h>

#include "layers/linear.h"
#include "layers/module.h"
#include "parallel/region.h"

namespace danlu::layers {

/// What a matrix of some numbers gives for tokens, [M, L], on every rank of the tensor axis: f64 of
/// hidden states in f64, else f32, in which it is computed too. hidden_nH: as the last layer gives
/// them. rows_M: int64 [M] on the host, of all ranks' rows. weight_LH, bias_L (may be undefined):
/// the whole of them on every rank, whose gradients under sequence parallelism are of its rows.
at::Tensor numbers_of_rows(const at::Tensor& hidden_nH, const at::Tensor& rows_M,
                           const at::Tensor& weight_LH, const at::Tensor& bias_L,
                           const parallel::Region& region);

struct ScoreHead {
  Linear linear;  ///< [L, H], all of it on every rank; undefined: the model has none
  parallel::Region region{parallel::Group::alone(), false};
  /// [H, H] of an encoder: the matrix reads tanh of what it gives; undefined in others.
  Linear dense = {};

  void visit(Visitor& visitor) {
    dense.visit(visitor);
    linear.visit(visitor);
  }
  /// numbers_of_rows() of its matrix, behind the dense layer where there is one.
  at::Tensor forward(const at::Tensor& hidden_nH, const at::Tensor& rows_M) const;
};

/// The hidden states of tokens, [M, H], as ScoreHead::forward reads them: on every rank of the
/// tensor axis, f64 of models in f64, else f32.
at::Tensor vectors_of_rows(const at::Tensor& hidden_nH, const at::Tensor& rows_M,
                           const parallel::Region& region);

}  // namespace danlu::layers
