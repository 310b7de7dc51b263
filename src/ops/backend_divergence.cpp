#include "ops/backend_divergence.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/logaddexp.h>

#include <cmath>

namespace danlu::ops {
namespace {

/// log P, log Q and log R.
struct Logs {
  at::Tensor own_Cv, other_Cv, towards_Cv;
};

Logs logs_of(const TwoShares& shares) {
  const at::Tensor own_Cv = shares.own_Cv - (shares.own_largest_C1 + shares.own_total_C1.log()),
                   other_Cv =
                       shares.other_Cv - (shares.other_largest_C1 + shares.other_total_C1.log());
  const double beta = shares.beta;
  if (beta == 0) return {own_Cv, other_Cv, own_Cv};
  if (beta == 1) return {own_Cv, other_Cv, other_Cv};
  return {own_Cv, other_Cv, at::logaddexp(own_Cv + std::log1p(-beta), other_Cv + std::log(beta))};
}

}  // namespace

at::Tensor composite_divergence_sums(const TwoShares& shares) {
  const Logs logs = logs_of(shares);
  const auto sum_of = [&](const at::Tensor& of_Cv) {
    return (of_Cv.exp() * (of_Cv - logs.towards_Cv)).sum(1, /*keepdim=*/true);
  };
  return at::cat({sum_of(logs.other_Cv), sum_of(logs.own_Cv)}, 1);
}

at::Tensor composite_divergence_grad(const TwoShares& shares, const at::Tensor& own_sum_C1,
                                     const at::Tensor& factor_C1) {
  const Logs logs = logs_of(shares);
  const at::Tensor own_Cv = logs.own_Cv.exp();
  if (shares.beta == 0) return factor_C1 * (own_Cv - logs.other_Cv.exp());
  const double part = shares.beta == 1 ? 1 : 1 - shares.beta;
  return factor_C1 * part * own_Cv * (logs.own_Cv - logs.towards_Cv - own_sum_C1);
}

}  // namespace danlu::ops
