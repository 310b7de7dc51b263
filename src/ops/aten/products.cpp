#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "ops/aten/table.h"

namespace danlu::ops::aten {
namespace {

bool is_wide(at::ScalarType type) { return type == at::kFloat; }

/// Calls visit(first, count) for bands of `size`, each of which has `numbers` of one of them to
/// widen.
template <typename Visit>
void for_each_band(int64_t size, int64_t numbers, const Visit& visit) {
  const int64_t most = std::max<int64_t>(1, kWideNumbers / std::max<int64_t>(1, numbers));
  for (int64_t first = 0; first < size; first += most) visit(first, std::min(most, size - first));
}

/// sum (f32) = beta * sum + a b; with beta 0 whatever the sum is.
void add_widened(const at::Tensor& sum, const at::Tensor& a, const at::Tensor& b, double beta) {
  const at::NoGradGuard no_grad;  // also where work was left for later, outside of a backward
  at::Tensor to = sum;
  at::addmm_out(to, sum, a.to(at::kFloat), b.to(at::kFloat), beta, 1);
}

at::Tensor zeros_f32(int64_t rows, int64_t columns, const at::Tensor& like) {
  return at::zeros({rows, columns}, like.options().dtype(at::kFloat));
}

}  // namespace

at::Tensor product(const at::Tensor& x_NI, const at::Tensor& weight_OI, const at::Tensor& bias_O,
                   at::ScalarType result) {
  if (result == x_NI.scalar_type()) {
    return bias_O.defined() ? at::addmm(bias_O, x_NI, weight_OI.t()) : at::mm(x_NI, weight_OI.t());
  }
  at::Tensor y_NO = zeros_f32(x_NI.size(0), weight_OI.size(0), x_NI);
  if (bias_O.defined()) y_NO.add_(bias_O);
  add_product(x_NI, weight_OI, y_NO);
  return y_NO.to(result);
}

void add_product(const at::Tensor& x_NI, const at::Tensor& weight_OI, const at::Tensor& y_NO) {
  const at::Tensor wide_NI = x_NI.to(at::kFloat);
  for_each_band(weight_OI.size(0), weight_OI.size(1), [&](int64_t first, int64_t count) {
    add_widened(y_NO.narrow(1, first, count), wide_NI, weight_OI.narrow(0, first, count).t(), 1);
  });
}

at::Tensor input_grad(const at::Tensor& d_y_NO, const at::Tensor& weight_OI,
                      at::ScalarType result) {
  if (result == d_y_NO.scalar_type()) return at::mm(d_y_NO, weight_OI);
  const at::Tensor sum_NI = zeros_f32(d_y_NO.size(0), weight_OI.size(1), d_y_NO);
  for_each_band(weight_OI.size(0), weight_OI.size(1), [&](int64_t first, int64_t count) {
    add_widened(sum_NI, d_y_NO.narrow(1, first, count), weight_OI.narrow(0, first, count), 1);
  });
  return sum_NI.to(result);
}

at::Tensor weight_grad(const at::Tensor& d_y_NO, const at::Tensor& x_NI, at::ScalarType result) {
  if (result == x_NI.scalar_type()) return at::mm(d_y_NO.t(), x_NI);
  const at::Tensor sum_OI = zeros_f32(d_y_NO.size(1), x_NI.size(1), x_NI);
  add_weight_grad(d_y_NO, x_NI, sum_OI, false);
  return sum_OI.to(result);
}

void add_weight_grad(const at::Tensor& d_y_NO, const at::Tensor& x_NI, const at::Tensor& sum_OI,
                     bool is_fresh) {
  const int64_t rows = x_NI.size(0);
  if (rows == 0 && is_fresh) at::Tensor(sum_OI).zero_();
  const int64_t of_row = is_wide(x_NI.scalar_type()) ? 0 : d_y_NO.size(1) + x_NI.size(1);
  for_each_band(rows, of_row, [&](int64_t first, int64_t count) {
    add_widened(sum_OI, d_y_NO.narrow(0, first, count).t(), x_NI.narrow(0, first, count),
                is_fresh && first == 0 ? 0 : 1);
  });
}

namespace {

/// Each group's rows times its factor, written where they belong.
template <typename FactorOf>
at::Tensor groups_multiplied(const at::Tensor& rows_RI, int64_t columns,
                             std::span<const int64_t> counts, const FactorOf& factor_of) {
  at::Tensor all_RO = at::empty({rows_RI.size(0), columns}, rows_RI.options());
  int64_t first = 0;
  for (size_t group = 0; group < counts.size(); ++group) {
    const int64_t count = counts[group];
    if (count > 0) {
      at::Tensor to = all_RO.narrow(0, first, count);
      at::mm_out(to, rows_RI.narrow(0, first, count), factor_of(group));
    }
    first += count;
  }
  return all_RO;
}

}  // namespace

at::Tensor grouped_product(const at::Tensor& x_RI, std::span<const at::Tensor> weights_OI,
                           std::span<const int64_t> counts) {
  return groups_multiplied(x_RI, weights_OI.front().size(0), counts,
                           [&](size_t group) { return weights_OI[group].t(); });
}

at::Tensor grouped_input_grad(const at::Tensor& d_y_RO, std::span<const at::Tensor> weights_OI,
                              std::span<const int64_t> counts) {
  return groups_multiplied(d_y_RO, weights_OI.front().size(1), counts,
                           [&](size_t group) { return weights_OI[group]; });
}

}  // namespace danlu::ops::aten
