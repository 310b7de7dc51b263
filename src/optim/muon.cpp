#include "optim/muon.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <cmath>

#include "base/error.h"
#include "ops/linear.h"
#include "ops/optimizer.h"

namespace danlu::optim {
namespace {

/// The norm of zeros is 0.
constexpr double kLeastNorm = 1e-7;

double frobenius_norm(const at::Tensor& matrix_RC) {
  double sum = 0;
  for (const double part :
       ops::sums_of_squares(matrix_RC.view({-1}), ops::chunks_of({{0, matrix_RC.numel()}})))
    sum += part;
  return std::sqrt(sum);
}

}  // namespace

at::Tensor orthogonalised(const at::Tensor& matrix_RC, const std::vector<NewtonSchulzStep>& steps) {
  if (matrix_RC.dim() != 2 || matrix_RC.scalar_type() != at::kFloat)
    throw InternalError("[muon] an f32 matrix is expected");
  const bool is_high = matrix_RC.size(0) > matrix_RC.size(1);
  // The smaller side squared is what the products cost.
  const at::Tensor given_RC = matrix_RC.contiguous();
  at::Tensor x_MN =
      (is_high ? given_RC.t().contiguous() : given_RC) / (frobenius_norm(given_RC) + kLeastNorm);
  for (const auto& [a, b, c] : steps) {
    const at::Tensor squares_MM = ops::linear(x_MN, x_MN);
    // A is symmetric: A A^T is A^2.
    const at::Tensor factor_MM = ops::linear(squares_MM, squares_MM).mul_(c).add_(squares_MM * b);
    x_MN = ops::linear(factor_MM, x_MN.t().contiguous()).add_(x_MN.mul_(a));
  }
  return is_high ? x_MN.t().contiguous() : x_MN;
}

at::Tensor muon_direction(const at::Tensor& momentum, const at::Tensor& gradient, double grad_scale,
                          const MuonConfig& config) {
  // Without add's factor, which vector loops fuse and their ends do not.
  const at::Tensor scaled = gradient * grad_scale;
  at::Tensor(momentum).mul_(config.momentum).add_(scaled);
  return config.nesterov ? scaled + momentum * config.momentum : momentum.clone();
}

WholeDirections::WholeDirections(const parallel::ParameterStore& store, const parallel::Unit& unit,
                                 const at::Tensor& share)
    : mesh_(store.mesh()), unit_(unit) {
  if (store.sharding() == parallel::Sharding::kNone) {
    flat_ = share;
    return;
  }
  flat_ = at::empty({unit.layout.total()}, share.options());
  mesh_.sharers(unit.copied_on).all_gather_into(share, flat_);
}

at::Tensor WholeDirections::of(size_t index) const {
  const parallel::Parameter& parameter = *unit_.parameters[index];
  const parallel::Range& at = unit_.layout.range(index);
  const at::Tensor joined_RC = flat_.narrow(0, at.begin, at.size()).view(parameter.tensor.sizes());
  return parallel::put_together(mesh_.tensor(), parameter, joined_RC);
}

}  // namespace danlu::optim
