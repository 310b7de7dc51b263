// ops/linear.h: y = x W^T + b, and batched products, for every dtype on every device.
#pragma once
#include <ATen/core/Tensor.h>

#include "ops/main_grad.h"

namespace danlu::ops {

/// Shapes  x_NI [N, I]; weight_OI [O, I]; bias_O [O] or undefined; result [N, O].
/// Dtypes  all equal. Where the device has no product of this type (device::has_matmul) it is
///         computed in f32 and rounded once; no f32 copy of the weight is made.
/// Grad    through all; those of weight and bias go to `main` where it has a place for them.
/// Errors  ModelError naming both shapes, or both dtypes.
struct LinearGrads {
  MainGradPtr weight = {}, bias = {};
};
at::Tensor linear(const at::Tensor& x_NI, const at::Tensor& weight_OI,
                  const at::Tensor& bias_O = {}, const LinearGrads& main = {});

/// Batched product [B, n, k] x [B, k, m] with the same dtype rule; operands are widened whole.
at::Tensor batched_product(const at::Tensor& a_BNK, const at::Tensor& b_BKM);

namespace oracle {
at::Tensor linear(const at::Tensor& x_NI, const at::Tensor& weight_OI,
                  const at::Tensor& bias_O = {});
}
}  // namespace danlu::ops
