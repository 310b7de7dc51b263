// ops/linear.h: y = x W^T + b, and batched products, for every dtype on every device.
#pragma once
#include <ATen/core/Tensor.h>

namespace danlu::ops {

/// Shapes  x_NI [N, I]; weight_OI [O, I]; bias_O [O] or undefined; result [N, O].
/// Dtypes  all equal. Where the device has no product of this type (f16 on CPUs) it is computed in
///         f32 and rounded.
/// Grad    through all. Errors  ModelError naming both shapes, or both dtypes.
at::Tensor linear(const at::Tensor& x_NI, const at::Tensor& weight_OI,
                  const at::Tensor& bias_O = {});

/// Batched product [B, n, k] x [B, k, m] with the same dtype rule.
at::Tensor batched_product(const at::Tensor& a_BNK, const at::Tensor& b_BKM);

}  // namespace danlu::ops
