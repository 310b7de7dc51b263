// ops/weight_grad.h: the gradient of a weight, added to the sum that training keeps. Internal to
// ops.
#pragma once
#include <ATen/core/Tensor.h>

namespace danlu::ops {

/// sum_OI += d_y_NO^T x_NI; of a fresh sum, sum_OI = that: what was there is not read. On CPUs
/// products of 16-bit types are summed in f32, whatever the number of calls: nothing is rounded to
/// 16 bits on the way. Other devices round a call's product once. Dtypes  d_y and x equal; sum f32,
/// or their own.
void add_weight_grad(const at::Tensor& d_y_NO, const at::Tensor& x_NI, const at::Tensor& sum_OI,
                     bool is_fresh = false);

}  // namespace danlu::ops
