// Divergences of two distributions over a vocabulary.
#include <ATen/core/Tensor.h>

#include <cmath>

#include "npu/arithmetic.h"
#include "npu/operators.h"
#include "npu/table.h"

namespace danlu::npu {
namespace {

/// The least logit of a sigmoid whose logarithm is a number in f32; nothing further below is
/// likely enough to count.
constexpr double kLeast = -80;

at::Tensor log_shares(const at::Tensor& logits_Cv, const at::Tensor& largest_C1,
                      const at::Tensor& total_C1) {
  const at::Tensor result = fresh(logits_Cv);
  aclnn::add(View(logits_Cv), View(largest_C1), Number(-1.0), View(result));
  add(result, logarithm(total_C1), -1);
  return result;
}

at::Tensor log_sigmoid(const at::Tensor& x) {
  const at::Tensor least = fresh(x, {1, 1}, x.scalar_type()).fill_(kLeast), kept = fresh(x);
  aclnn::maximum(View(x), View(least), View(kept));
  return logarithm(sigmoid(kept));
}

/// log P, log Q, and their logarithms less that of R. P / M is sigmoid(log P/Q + log (1 - β)/β)
/// over 1 - β.
struct Logs {
  at::Tensor own_Cv, other_Cv, ratio_Cv;
  double beta;

  explicit Logs(const ops::TwoShares& shares)
      : own_Cv(log_shares(shares.own_Cv, shares.own_largest_C1, shares.own_total_C1)),
        other_Cv(log_shares(shares.other_Cv, shares.other_largest_C1, shares.other_total_C1)),
        ratio_Cv(fresh(own_Cv)),
        beta(shares.beta) {
    aclnn::add(View(own_Cv), View(other_Cv), Number(-1.0), View(ratio_Cv));
  }
  double lead() const { return std::log1p(-beta) - std::log(beta); }
  at::Tensor own_less() const {
    if (beta == 1) return ratio_Cv;
    return plus(log_sigmoid(plus(ratio_Cv, lead())), -std::log1p(-beta));
  }
  at::Tensor other_less() const {
    if (beta == 0) return times(ratio_Cv, -1.0);
    return plus(log_sigmoid(times(plus(ratio_Cv, lead()), -1.0)), -std::log(beta));
  }
};

}  // namespace

at::Tensor divergence_sums(const ops::TwoShares& shares) {
  const at::Tensor sums_C2 = fresh(shares.own_Cv, {shares.own_Cv.size(0), 2}, at::kFloat).zero_();
  if (shares.own_Cv.numel() == 0) return sums_C2;
  const Logs logs(shares);
  const auto put = [&](int64_t place, const at::Tensor& log_share_Cv, const at::Tensor& less_Cv) {
    sums_C2.narrow(1, place, 1)
        .copy_(sum_over(times(exponential(log_share_Cv), less_Cv), {1}, true));
  };
  if (shares.beta < 1) put(0, logs.other_Cv, logs.other_less());
  if (shares.beta > 0) put(1, logs.own_Cv, logs.own_less());
  return sums_C2;
}

at::Tensor divergence_grad(const ops::TwoShares& shares, const at::Tensor& own_sum_C1,
                           const at::Tensor& factor_C1) {
  if (shares.own_Cv.numel() == 0) return fresh(shares.own_Cv);
  const Logs logs(shares);
  const at::Tensor own_Cv = exponential(logs.own_Cv);
  if (shares.beta == 0) {
    add(own_Cv, exponential(logs.other_Cv), -1);
    return times(own_Cv, factor_C1);
  }
  const at::Tensor less_Cv = logs.own_less();
  add(less_Cv, own_sum_C1, -1);
  const at::Tensor grad_Cv = times(times(own_Cv, less_Cv), factor_C1);
  if (shares.beta < 1) multiply(grad_Cv, 1 - shares.beta);
  return grad_Cv;
}

}  // namespace danlu::npu
