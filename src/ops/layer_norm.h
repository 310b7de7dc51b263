// ops/layer_norm.h: layer normalisation over the last dimension.
#pragma once
#include <ATen/core/Tensor.h>

#include "ops/main_grad.h"

namespace danlu::ops {

/// Where the gradients of a norm's weight and bias go; null: to autograd.
struct NormMains {
  MainGradPtr weight = {}, bias = {};
};

/// y = (x - mean(x)) / sqrt(var(x) + eps) * weight + bias, with the variance over D, not D - 1
/// (arXiv:1607.06450 §3.1).
///
/// Shapes  x [N, D]; weight_D, bias_D [D]; result as x.
/// Dtypes  f32, bf16, f16, f64; computed in f32 (f64 for f64) and rounded once.
/// Grad    through x, weight and bias; of the last two to `main` where it has a place for them.
/// Errors  ModelError if weight or bias is not [D].
at::Tensor layer_norm(const at::Tensor& x_ND, const at::Tensor& weight_D, const at::Tensor& bias_D,
                      double eps, const NormMains& main = {});

}  // namespace danlu::ops
