// Cross entropy of a chunk of logits, the likeliest token, and dropout.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include "base/rng.h"
#include "npu/arithmetic.h"
#include "npu/operators.h"
#include "npu/table.h"
#include "ops/dropout_threshold.h"

namespace danlu::npu {
namespace {

/// x[i, index[i]] [C, 1].
at::Tensor picked(const at::Tensor& x_CV, const at::Tensor& index_C1) {
  const at::Tensor result = fresh(x_CV, index_C1.sizes(), x_CV.scalar_type());
  aclnn::gather(View(x_CV), int64_t{1}, View(index_C1), View(result));
  return result;
}

}  // namespace

void cross_entropy(const ops::CrossEntropyChunk& chunk) {
  const at::Tensor &logits_CV = chunk.logits_CV, target_C1 = chunk.targets_C.unsqueeze(1);
  if (logits_CV.numel() == 0) return;
  const int64_t rows = logits_CV.size(0);
  const at::Tensor wide_CV = wide(logits_CV);
  const at::Tensor largest_C1 = fresh(wide_CV, {rows, 1}, at::kFloat),
                   first_C1 = fresh(wide_CV, {rows, 1}, at::kLong);
  const bool adds_z = chunk.z_weight > 0;
  if (adds_z && chunk.make_grad) {
    aclnn::max_dim(View(wide_CV), int64_t{1}, true, View(largest_C1), View(first_C1));
  } else {
    aclnn::amax(View(wide_CV), Numbers{1}, true, View(largest_C1));
  }
  at::Tensor below_C1 = picked(wide_CV, target_C1);  // the target's logit less the largest
  add(below_C1, largest_C1, -1);
  const at::Tensor is_largest_C1 = fresh(below_C1, {rows, 1}, at::kBool);
  aclnn::ge_scalar(View(below_C1), Number(0.0), View(is_largest_C1));
  add(chunk.correct.view({1}), sum_over(cast(is_largest_C1, at::kLong).view({rows}), {0}, true));

  const at::Tensor lower_CV = fresh(wide_CV);
  aclnn::add(View(wide_CV), View(largest_C1), Number(-1.0), View(lower_CV));
  const at::Tensor weight_CV = exponential(lower_CV), total_C1 = sum_over(weight_CV, {1}, true);
  const at::Tensor loss_C1 = logarithm(total_C1);
  add(loss_C1, below_C1, -1);
  if (adds_z) add(loss_C1, times(largest_C1, largest_C1), chunk.z_weight);
  add(chunk.sum.view({1}), sum_over(loss_C1.view({rows}), {0}, true));
  if (!chunk.make_grad) return;

  const at::Tensor share_CV = divided(weight_CV, total_C1);
  const at::Tensor less_one_C1 = fresh(total_C1);
  at::Tensor(less_one_C1).fill_(-1.0);
  at::Tensor grad_CV = with_added(share_CV, target_C1, less_one_C1);
  if (adds_z) grad_CV = with_added(grad_CV, first_C1, times(largest_C1, 2 * chunk.z_weight));
  if (chunk.grad_scale != 1.0) multiply(grad_CV, chunk.grad_scale);
  logits_CV.copy_(grad_CV);
}

at::Tensor likeliest(const at::Tensor& logits_RV) {
  const int64_t rows = logits_RV.size(0);
  const at::Tensor wide_RV = wide(logits_RV);
  const at::Tensor largest_R1 = fresh(wide_RV, {rows, 1}, at::kFloat),
                   place_R1 = fresh(wide_RV, {rows, 1}, at::kLong);
  if (rows > 0) aclnn::max_dim(View(wide_RV), int64_t{1}, true, View(largest_R1), View(place_R1));
  return place_R1.view({rows});
}

/// The bits that decide come from our own counter, so that they do not depend on how tokens are
/// cut, and CANN has no such: the host makes them, and they go to the device as bytes.
at::Tensor dropout(const at::Tensor& x_NI, double p, const at::Tensor& keys_N, uint64_t salt,
                   int64_t first_column) {
  const int64_t rows = x_NI.size(0), columns = x_NI.size(1);
  if (x_NI.numel() == 0) return fresh(x_NI, x_NI.sizes(), x_NI.scalar_type());
  const at::Tensor host_N = keys_N.to(at::kCPU).contiguous();
  const at::Tensor kept_NI = at::empty({rows, columns}, at::kByte);
  const uint64_t threshold = ops::dropout_threshold(p);
  for (int64_t row = 0; row < rows; ++row) {
    const uint64_t seed = mix64(static_cast<uint64_t>(host_N.data_ptr<int64_t>()[row]), salt);
    uint8_t* const out = kept_NI.data_ptr<uint8_t>() + row * columns;
    for (int64_t i = 0; i < columns; ++i) {
      const auto column = static_cast<uint64_t>(first_column + i);
      const uint64_t pair = mix64(seed, column / 2);
      const uint64_t draw = column % 2 == 0 ? pair & 0xffffffff : pair >> 32;
      out[i] = draw >= threshold ? 1 : 0;
    }
  }
  const at::Tensor factor_NI = cast(kept_NI.to(x_NI.device()), at::kFloat);
  multiply(factor_NI, 1.0 / (1.0 - p));
  return cast(times(factor_NI, wide(x_NI)), x_NI.scalar_type());
}

}  // namespace danlu::npu
