#include "optim/low_rank.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_svd.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "base/error.h"
#include "base/file.h"

namespace danlu::optim {
namespace {

/// Beside norms that divide, as apollo_torch has it; and how much a norm may grow in an update.
constexpr double kBesideNorm = 1e-8, kMostGrowth = 1.01;

/// Each row with its largest number positive.
at::Tensor with_signs(const at::Tensor& vectors_KN) {
  const at::Tensor largest_K1 =
      vectors_KN.gather(1, std::get<1>(vectors_KN.abs().max(1, /*keepdim=*/true)));
  return vectors_KN * largest_K1.sign();
}

at::Tensor drawn(at::IntArrayRef shape, double deviation, const at::Tensor& like,
                 const std::string& what) {
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(hash_bytes(what));
  return at::empty(shape, at::TensorOptions(at::kFloat))
      .normal_(0, deviation, generator)
      .to(like.device());
}

/// Projections for the next updates.
void make_projections(const LowRankConfig& config, const MatrixGradient& of,
                      const StateByKind& state) {
  const auto right = state.find("low_projection."), left = state.find("low_projection_left.");
  if (config.draws) {
    const double deviation = 1 / std::sqrt(static_cast<double>(config.rank));
    const std::string what = fmt::format("projection {} {} {}", config.seed, of.update, of.name);
    for (const auto& side : {right, left}) {
      if (side != state.end())
        at::Tensor(side->second)
            .copy_(drawn(side->second.sizes(), deviation, of.gradient_RC, what + side->first));
    }
    return;
  }
  const auto [left_RK, values_K, right_KC] =
      at::linalg_svd(of.gradient_RC, /*full_matrices=*/false);
  if (right != state.end()) {
    const int64_t rank = right->second.size(0);
    at::Tensor(right->second).copy_(with_signs(right_KC.narrow(0, 0, rank)));
  }
  if (left != state.end()) {
    const int64_t rank = left->second.size(1);
    at::Tensor(left->second).copy_(with_signs(left_RK.narrow(1, 0, rank).t().contiguous()).t());
  }
}

/// The norm may grow by a hundredth from update to update.
void limit_growth(const at::Tensor& last_norm, at::Tensor& change_RC) {
  const double norm = change_RC.norm().item<double>(), last = last_norm.item<double>();
  const double over =
      last > 0 ? std::max(norm / (last + kBesideNorm), kMostGrowth) / kMostGrowth : 1.0;
  if (over != 1) change_RC.div_(over);
  at::Tensor(last_norm).fill_(norm / over);
}

/// APOLLO's: the gradient, scaled as the update in the subspace scales what is there of it.
at::Tensor scaled_gradient(const LowRankConfig& config, const at::Tensor& gradient_RC,
                           const at::Tensor& low, const at::Tensor& low_change, bool is_right,
                           const at::Tensor& last_norm) {
  at::Tensor change_RC;
  if (config.has_one_factor) {
    change_RC = gradient_RC *
                (low_change.norm().item<double>() / (low.norm().item<double>() + kBesideNorm));
  } else {
    const int64_t along = is_right ? 1 : 0;
    change_RC = gradient_RC * (low_change.norm(2, along, /*keepdim=*/true) /
                               (low.norm(2, along, /*keepdim=*/true) + kBesideNorm));
  }
  const double root = std::sqrt(config.scale);
  if (config.scales_first) change_RC.mul_(root);
  limit_growth(last_norm, change_RC);
  if (!config.scales_first) change_RC.mul_(root);
  return change_RC;
}

}  // namespace

at::Tensor low_rank_change(const LowRankConfig& config, const settings::AdamWConfig& adam,
                           const MatrixGradient& of, const StateByKind& state) {
  if ((of.update - 1) % config.interval == 0) make_projections(config, of, state);
  const auto right = state.find("low_projection."), left = state.find("low_projection_left.");
  const bool has_right = right != state.end(), has_left = left != state.end();
  at::Tensor low = of.gradient_RC;
  if (has_left) low = left->second.t().matmul(low);
  if (has_right) low = low.matmul(right->second.t());

  at::Tensor avg = state.at("low_avg."), avg_sq = state.at("low_avg_sq.");
  avg.mul_(adam.beta1).add_(low * (1 - adam.beta1));
  avg_sq.mul_(adam.beta2).add_(low * low * (1 - adam.beta2));
  const at::Tensor low_change = avg / (avg_sq.sqrt() + adam.eps);
  const auto update = static_cast<double>(of.update);
  const double corrected =
      std::sqrt(1 - std::pow(adam.beta2, update)) / (1 - std::pow(adam.beta1, update));
  if (config.method == LowRankConfig::Method::kApollo) {
    return scaled_gradient(config, of.gradient_RC, low, low_change, has_right,
                           state.at("low_norm."))
        .mul_(corrected);
  }
  at::Tensor change_RC = low_change;
  if (has_left) change_RC = left->second.matmul(change_RC);
  if (has_right) change_RC = change_RC.matmul(right->second);
  return change_RC.mul_(config.scale * corrected);
}

at::Tensor means_of_squares(const at::Tensor& values, int64_t blocks) {
  return (values * values).reshape({blocks, -1}).mean(1);
}

}  // namespace danlu::optim
