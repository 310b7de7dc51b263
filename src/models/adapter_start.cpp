#include "models/adapter_start.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_qr.h>
#include <ATen/ops/linalg_svd.h>

#include <tuple>

#include "base/error.h"

namespace danlu::models {
namespace {

struct Singular {
  at::Tensor left_OR, values_R, right_RI;
};

Singular largest(const at::Tensor& weight_OI, int64_t rank) {
  const auto [left_OK, values_K, right_KI] = at::linalg_svd(weight_OI, /*full_matrices=*/false);
  return {left_OK.narrow(1, 0, rank), values_K.narrow(0, 0, rank), right_KI.narrow(0, 0, rank)};
}

at::Tensor orthonormal(const at::Tensor& columns) {
  return std::get<0>(at::linalg_qr(columns, "reduced"));
}

/// Algorithms 4.4 and 5.1 of arXiv:0909.4061, as torch.svd_lowrank takes them: the range of the
/// smaller side's vectors by subspace iterations, then the decomposition within it.
Singular largest_about(const at::Tensor& weight_OI, int64_t rank, int64_t iterations,
                       uint64_t seed) {
  const at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  const at::Tensor drawn_OR = at::empty({weight_OI.size(0), rank}, at::TensorOptions(at::kFloat))
                                  .normal_(0, 1, generator)
                                  .to(weight_OI.device());
  const at::Tensor turned_IO = weight_OI.t().contiguous();
  at::Tensor range_IR = orthonormal(turned_IO.matmul(drawn_OR));
  for (int64_t i = 0; i < iterations; ++i)
    range_IR = orthonormal(turned_IO.matmul(orthonormal(weight_OI.matmul(range_IR))));
  const Singular within = largest(weight_OI.matmul(range_IR), rank);
  return {within.left_OR, within.values_R, within.right_RI.matmul(range_IR.t())};
}

}  // namespace

StartFactors start_factors(const at::Tensor& weight_OI, int64_t rank, double scale,
                           const weights::AdapterStart& start, uint64_t seed) {
  const at::NoGradGuard no_grad;
  if (start.kind == weights::AdapterStart::Kind::kOlora) {
    const auto [q_OK, r_KI] = at::linalg_qr(weight_OI, "reduced");
    return {r_KI.narrow(0, 0, rank).contiguous(), q_OK.narrow(1, 0, rank).contiguous()};
  }
  if (start.kind != weights::AdapterStart::Kind::kPissa)
    throw InternalError("[lora] this start takes nothing from the base");
  const Singular found = start.iterations > 0
                             ? largest_about(weight_OI, rank, start.iterations, seed)
                             : largest(weight_OI, rank);
  const at::Tensor roots_R = (found.values_R / scale).sqrt();
  return {roots_R.view({-1, 1}) * found.right_RI, found.left_OR * roots_R};
}

}  // namespace danlu::models
