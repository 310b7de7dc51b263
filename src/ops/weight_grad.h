// ops/weight_grad.h: the gradient of a weight, added to the sum that training keeps. Internal to
// ops.
#pragma once
#include <ATen/core/Tensor.h>

namespace danlu::ops {

/// sum_OI += d_y_NO^T x_NI. Products of 16-bit types are summed in f32, whatever the number of
/// calls: nothing is rounded to 16 bits on the way, but on devices other than CPUs and on CPUs that
/// multiply bf16 where this build has no oneDNN of its own; there a call's product is rounded once.
/// Dtypes  d_y and x equal; sum f32, or their own.
void add_weight_grad(const at::Tensor& d_y_NO, const at::Tensor& x_NI, const at::Tensor& sum_OI);

namespace cpu {

/// True where this processor multiplies bf16 and the build can add such products to f32.
bool has_bf16_sums();
/// The same for bf16 and an f32 sum. REQUIRES: O > 1, I > 1.
void add_bf16_weight_grad(const at::Tensor& d_y_NO, const at::Tensor& x_NI,
                          const at::Tensor& sum_OI);

}  // namespace cpu
}  // namespace danlu::ops
