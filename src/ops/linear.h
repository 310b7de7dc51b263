// ops/linear.h: y = x W^T + b, and batched products, for every dtype on every device.
#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

#include "ops/main_grad.h"

namespace danlu::ops {

struct Backend;

/// Where the gradients of a weight and a bias go; null: to autograd.
struct LinearGrads {
  MainGradPtr weight = {}, bias = {};
};
/// Shapes  x_NI [..., I], any leading dimensions; weight_OI [O, I]; bias_O [O] or undefined; result
///         [..., O].
/// Dtypes  all equal. On CPUs sums are f32 and rounded once; a type that is not multiplied as it is
///         is widened block by block: no f32 copy of the weight is made.
/// Grad    through all; those of weight and bias go to `main` where it has a place for them (on
/// CPUs
///         not with Kernels::kComposite, whose gradients are autograd's).
/// Errors  ModelError naming both shapes, or both dtypes.
at::Tensor linear(const at::Tensor& x_NI, const at::Tensor& weight_OI,
                  const at::Tensor& bias_O = {}, const LinearGrads& main = {});

struct LinearFactor {
  at::Tensor weight_OI, bias_O = {};
};
/// linear() of several weights [O_i, I] that read one input, without gradient: few rows in one
/// loop. Shapes, dtypes and errors as linear()'s; results [..., O_i]. REQUIRES: there is a factor.
std::vector<at::Tensor> linears(const at::Tensor& x_NI, const std::vector<LinearFactor>& factors);

/// The table whose products this weight's go through; null: ATen's are used.
const Backend* products_for(const at::Tensor& weight_OI);

/// libtorch's product [n, k] x [k, m], and [B, n, k] x [B, k, m]: where it has none of the type,
/// operands are widened whole and the result is rounded once.
at::Tensor matrix_product(const at::Tensor& a_NK, const at::Tensor& b_KM);
at::Tensor batched_product(const at::Tensor& a_BNK, const at::Tensor& b_BKM);

namespace oracle {
at::Tensor linear(const at::Tensor& x_NI, const at::Tensor& weight_OI,
                  const at::Tensor& bias_O = {});
}
}  // namespace danlu::ops
