#include "ops/products_cpu.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>

#include "ops/few_rows_cpu.h"
#include "ops/gemm_cpu.h"
#include "ops/kernels_cpu.h"
#include "ops/unsigned_of.h"

namespace danlu::ops::cpu {
namespace {

/// With one of the strides 1.
at::Tensor with_unit_stride(const at::Tensor& matrix) {
  return matrix.stride(0) == 1 || matrix.stride(1) == 1 ? matrix : matrix.contiguous();
}

/// A matrix whose dimension `k` is the one that products sum over.
Factor factor_of(const at::Tensor& matrix, int64_t k) {
  return {element_of(matrix), matrix.data_ptr(), unsigned_of(matrix.stride(k)),
          unsigned_of(matrix.stride(1 - k))};
}

/// left [m, k] right [n, k]^T into `to`, whose columns are contiguous; `k` says which dimension of
/// each that is.
struct Multiplied {
  const at::Tensor& left;
  int64_t left_k;
  const at::Tensor& right;
  int64_t right_k;
};
void multiply_into(const Multiplied& factors, const at::Tensor& to, const at::Tensor& bias,
                   bool add, const at::Tensor& next = {}) {
  const at::Tensor left = with_unit_stride(factors.left), right = with_unit_stride(factors.right);
  const at::Tensor whole_bias =
      bias.defined() ? bias.to(to.scalar_type()).contiguous() : at::Tensor();
  multiply(
      {unsigned_of(to.size(0)), unsigned_of(to.size(1)), unsigned_of(left.size(factors.left_k)),
       factor_of(left, factors.left_k), factor_of(right, factors.right_k), element_of(to),
       to.data_ptr(), unsigned_of(to.stride(0)), bias.defined() ? whole_bias.data_ptr() : nullptr,
       add, nullptr,
       next.defined() && next.strides() == factors.right.strides() ? next.data_ptr() : nullptr});
}

/// A result that kernels can round to.
at::Tensor fresh(int64_t rows, int64_t columns, const at::Tensor& like, at::ScalarType type) {
  const bool rounds = type != at::kHalf || rounds_f16();
  return at::empty({rows, columns}, like.options().dtype(rounds ? type : at::kFloat));
}

/// Whether to read the weight where it lies, as the left factor, and to pack the rows: packing a
/// weight costs a third of a product of 64 rows. The sums are the same, bit for bit. Rows must fill
/// panels.
bool packs_rows(const at::Tensor& rows_nI, const at::Tensor& weight_OI) {
  constexpr int64_t kMostRows = 160;
  const int64_t rows = rows_nI.size(0),
                panel = static_cast<int64_t>(panel_columns(Arithmetic::kF32)),
                filled = (rows + panel - 1) / panel * panel;
  return rows <= kMostRows && 8 * rows >= 7 * filled && weight_OI.size(0) >= 4 * rows &&
         weight_OI.stride(1) == 1 && rows_nI.stride(1) == 1 &&
         weight_OI.scalar_type() == at::kFloat && rows_nI.scalar_type() == at::kFloat;
}
void multiply_turned_into(const at::Tensor& rows_nI, const at::Tensor& weight_OI,
                          const at::Tensor& to_nO) {
  const at::Tensor turned_On = at::empty({to_nO.size(1), to_nO.size(0)}, to_nO.options());
  multiply_into({weight_OI, 1, rows_nI, 1}, turned_On, {}, false);
  to_nO.copy_(turned_On.t());
}

/// multiply_into of each group's rows of `rows` with its weight; `k`: the weight's dimension that
/// products sum over.
at::Tensor multiply_groups(const at::Tensor& rows_RI, std::span<const at::Tensor> weights,
                           std::span<const int64_t> counts, int64_t k) {
  const at::Tensor all_RO =
      fresh(rows_RI.size(0), weights.front().size(1 - k), rows_RI, rows_RI.scalar_type());
  int64_t first = 0;
  for (size_t group = 0; group < counts.size(); ++group) {
    const int64_t count = counts[group];
    if (count == 0) continue;
    const bool has_next = group + 1 < counts.size() && counts[group + 1] > 0;
    const at::Tensor rows_nI = rows_RI.narrow(0, first, count),
                     to_nO = all_RO.narrow(0, first, count);
    if (k == 1 && all_RO.scalar_type() == rows_RI.scalar_type() &&
        takes_few_rows(rows_nI, weights[group])) {
      const std::array factors{LinearFactor{weights[group]}};
      to_nO.copy_(few_rows_products(rows_nI, factors).front());
    } else if (k == 1 && packs_rows(rows_nI, weights[group])) {
      multiply_turned_into(rows_nI, weights[group], to_nO);
    } else {
      multiply_into({rows_nI, 1, weights[group], k}, to_nO, {}, false,
                    has_next ? weights[group + 1] : at::Tensor());
    }
    first += count;
  }
  return all_RO.to(rows_RI.scalar_type());
}

}  // namespace

at::Tensor product(const at::Tensor& x_NI, const at::Tensor& weight_OI, const at::Tensor& bias_O,
                   at::ScalarType result) {
  if (result == x_NI.scalar_type() && takes_few_rows(x_NI, weight_OI)) {
    const std::array factors{LinearFactor{weight_OI, bias_O}};
    return few_rows_products(x_NI, factors).front();
  }
  const at::Tensor y_NO = fresh(x_NI.size(0), weight_OI.size(0), x_NI, result);
  multiply_into({x_NI, 1, weight_OI, 1}, y_NO, bias_O, false);
  return y_NO.to(result);
}

std::vector<at::Tensor> products(const at::Tensor& x_NI, std::span<const LinearFactor> factors) {
  if (std::all_of(factors.begin(), factors.end(), [&](const LinearFactor& factor) {
        return takes_few_rows(x_NI, factor.weight_OI);
      }))
    return few_rows_products(x_NI, factors);
  std::vector<at::Tensor> results;
  for (const auto& [weight_OI, bias_O] : factors)
    results.push_back(product(x_NI, weight_OI, bias_O, x_NI.scalar_type()));
  return results;
}

at::Tensor input_grad(const at::Tensor& d_y_NO, const at::Tensor& weight_OI,
                      at::ScalarType result) {
  const at::Tensor d_x_NI = fresh(d_y_NO.size(0), weight_OI.size(1), d_y_NO, result);
  multiply_into({d_y_NO, 1, weight_OI, 0}, d_x_NI, {}, false);
  return d_x_NI.to(result);
}

at::Tensor weight_grad(const at::Tensor& d_y_NO, const at::Tensor& x_NI, at::ScalarType result) {
  const at::Tensor d_weight_OI = fresh(d_y_NO.size(1), x_NI.size(1), x_NI, result);
  multiply_into({d_y_NO, 0, x_NI, 0}, d_weight_OI, {}, false);
  return d_weight_OI.to(result);
}

void add_weight_grad(const at::Tensor& d_y_NO, const at::Tensor& x_NI, const at::Tensor& sum_OI,
                     bool is_fresh) {
  multiply_into({d_y_NO, 0, x_NI, 0}, sum_OI, {}, !is_fresh);
}

at::Tensor grouped_product(const at::Tensor& x_RI, std::span<const at::Tensor> weights_OI,
                           std::span<const int64_t> counts) {
  return multiply_groups(x_RI, weights_OI, counts, 1);
}

at::Tensor grouped_input_grad(const at::Tensor& d_y_RO, std::span<const at::Tensor> weights_OI,
                              std::span<const int64_t> counts) {
  return multiply_groups(d_y_RO, weights_OI, counts, 0);
}

void add_product(const at::Tensor& x_NI, const at::Tensor& weight_OI, const at::Tensor& y_NO) {
  multiply_into({x_NI, 1, weight_OI, 1}, y_NO, {}, true);
}

}  // namespace danlu::ops::cpu
