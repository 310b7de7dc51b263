// Cross entropy of ranks that share a vocabulary.
#include <ATen/core/Tensor.h>

#include <limits>

#include "npu/arithmetic.h"
#include "npu/operators.h"
#include "npu/table.h"

namespace danlu::npu {
namespace {

constexpr double kNoLogit = -std::numeric_limits<double>::infinity();

at::Tensor is_at_least(const at::Tensor& x, double value) {
  const at::Tensor flag = fresh(x, x.sizes(), at::kBool);
  aclnn::ge_scalar(View(x), Number(value), View(flag));
  return flag;
}
at::Tensor chosen(const at::Tensor& flag, const at::Tensor& yes, double no) {
  const at::Tensor other = fresh(yes, {1, 1}, yes.scalar_type()).fill_(no), result = fresh(yes);
  aclnn::where(View(flag), View(yes), View(other), View(result));
  return result;
}

/// Which targets are this rank's, and in which column; of others column 0.
struct OwnTargets {
  at::Tensor here_C1, column_C1;  ///< f32 1 or 0; int64
};
OwnTargets own_targets(const ops::SharedChunk& chunk) {
  const at::Tensor local_C1 = fresh(chunk.targets_C, {chunk.targets_C.size(0), 1}, at::kLong);
  aclnn::adds(View(chunk.targets_C.unsqueeze(1)), Number(-chunk.first_row), Number(int64_t{1}),
              View(local_C1));
  // Vocabularies are small enough for f32 to know each number.
  const at::Tensor number_C1 = cast(local_C1, at::kFloat);
  const at::Tensor here_C1 = cast(is_at_least(number_C1, 0), at::kFloat);
  add(here_C1,
      cast(is_at_least(number_C1, static_cast<double>(chunk.logits_Cv.size(1))), at::kFloat), -1);
  return {here_C1, times(local_C1, cast(here_C1, at::kLong))};
}

at::Tensor difference(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor result = fresh(a);
  aclnn::add(View(a), View(b), Number(-1.0), View(result));
  return result;
}

}  // namespace

at::Tensor largest_of_share(const at::Tensor& logits_Cv) {
  const at::Tensor largest_C1 = fresh(logits_Cv, {logits_Cv.size(0), 1}, at::kFloat);
  if (logits_Cv.size(1) == 0) return largest_C1.fill_(kNoLogit);
  if (logits_Cv.numel() > 0) aclnn::amax(View(logits_Cv), Numbers{1}, true, View(largest_C1));
  return largest_C1;
}

at::Tensor sums_of_share(const ops::SharedChunk& chunk, const at::Tensor& largest_C1) {
  const at::Tensor& logits_Cv = chunk.logits_Cv;
  const at::Tensor sums_C2 = fresh(logits_Cv, {logits_Cv.size(0), 2}, at::kFloat);
  if (logits_Cv.numel() == 0) return sums_C2.zero_();
  const auto [here_C1, column_C1] = own_targets(chunk);
  const at::Tensor target_C1 = fresh(here_C1);
  aclnn::gather(View(logits_Cv), int64_t{1}, View(column_C1), View(target_C1));
  sums_C2.narrow(1, 1, 1).copy_(chosen(is_at_least(here_C1, 0.5), target_C1, 0));
  add(logits_Cv, largest_C1, -1);
  logits_Cv.copy_(exponential(logits_Cv));
  sums_C2.narrow(1, 0, 1).copy_(sum_over(logits_Cv, {1}, true));
  return sums_C2;
}

at::Tensor place_of_largest(const at::Tensor& own_C1, const at::Tensor& largest_C1,
                            int64_t first_row) {
  if (own_C1.numel() == 0) return fresh(own_C1);
  const at::Tensor place_C1 = fresh(own_C1).fill_(-static_cast<double>(first_row));
  return chosen(is_at_least(difference(own_C1, largest_C1), 0), place_C1, kNoLogit);
}

void loss_of_share(const ops::SharedLoss& loss) {
  const at::Tensor &logits_Cv = loss.chunk.logits_Cv, &largest_C1 = loss.largest_C1;
  const int64_t rows = logits_Cv.size(0);
  if (rows == 0) return;
  const at::Tensor total_C1 = loss.sums_C2.narrow(1, 0, 1).contiguous(),
                   below_C1 = difference(loss.sums_C2.narrow(1, 1, 1).contiguous(), largest_C1);
  const at::Tensor own_C1 = logarithm(total_C1);
  add(own_C1, below_C1, -1);
  if (loss.z_weight > 0) add(own_C1, times(largest_C1, largest_C1), loss.z_weight);
  add(loss.sum.view({1}), sum_over(own_C1.view({rows}), {0}, true));
  add(loss.correct.view({1}),
      sum_over(cast(is_at_least(below_C1, 0), at::kLong).view({rows}), {0}, true));
  if (!loss.make_grad || logits_Cv.size(1) == 0) return;
  const auto [here_C1, column_C1] = own_targets(loss.chunk);
  at::Tensor grad_Cv = with_added(divided(logits_Cv, total_C1), column_C1, times(here_C1, -1.0));
  if (loss.z_weight > 0) {
    const at::Tensor most_C1 = fresh(largest_C1), at_C1 = fresh(largest_C1, {rows, 1}, at::kLong);
    aclnn::max_dim(View(logits_Cv), int64_t{1}, true, View(most_C1), View(at_C1));
    const double own_place = -static_cast<double>(loss.chunk.first_row);
    const at::Tensor is_here_C1 =
        times(cast(is_at_least(loss.first_C1, own_place), at::kFloat),
              cast(is_at_least(times(loss.first_C1, -1.0), -own_place), at::kFloat));
    grad_Cv = with_added(grad_Cv, at_C1, times(times(largest_C1, is_here_C1), 2 * loss.z_weight));
  }
  if (loss.grad_scale != 1.0) multiply(grad_Cv, loss.grad_scale);
  logits_Cv.copy_(grad_Cv);
}

}  // namespace danlu::npu
