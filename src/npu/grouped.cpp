// Products of groups of rows with a weight each: one call where the weights lie one after the
// other.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <numeric>

#include "npu/arithmetic.h"
#include "npu/operators.h"
#include "npu/table.h"

namespace danlu::npu {
namespace {

using Weights = std::span<const at::Tensor>;
using Counts = std::span<const int64_t>;

// The operator's limits.
constexpr int64_t kMostColumns = 65535;
constexpr size_t kMostGroups = 1024;

/// Whether they are one tensor [groups, O, I].
bool are_one(const Weights& weights_OI) {
  const at::Tensor& first = weights_OI.front();
  for (size_t g = 0; g < weights_OI.size(); ++g) {
    const at::Tensor& weight = weights_OI[g];
    if (!weight.is_contiguous() || !weight.storage().is_alias_of(first.storage()) ||
        weight.storage_offset() != first.storage_offset() + static_cast<int64_t>(g) * first.numel())
      return false;
  }
  return true;
}

bool takes(const at::Tensor& x_RI, const Weights& weights_OI) {
  const at::Tensor& first = weights_OI.front();
  return aclnn::grouped_matmul.is_there() && weights_OI.size() <= kMostGroups &&
         first.size(0) <= kMostColumns && first.size(1) <= kMostColumns && first.numel() > 0 &&
         x_RI.scalar_type() == first.scalar_type() && are_one(weights_OI);
}

/// How many rows each group has, on the device.
at::Tensor counts_there(const Counts& counts, const at::Tensor& like) {
  const at::Tensor host = at::empty({static_cast<int64_t>(counts.size())}, at::kLong);
  std::copy(counts.begin(), counts.end(), host.data_ptr<int64_t>());
  return host.to(like.device());
}

/// [groups, O, I], or turned [groups, I, O].
void multiply_groups(const at::Tensor& x, const Weights& weights_OI, const Counts& counts,
                     bool turned, const at::Tensor& out) {
  const at::Tensor& first = weights_OI.front();
  const int64_t o = first.size(0), i = first.size(1);
  const auto groups = static_cast<int64_t>(weights_OI.size());
  const int64_t straight_sizes[] = {groups, o, i}, straight_steps[] = {o * i, i, 1},
                turned_sizes[] = {groups, i, o}, turned_steps[] = {o * i, 1, i};
  const ViewList rows(x), results(out),
      weights(first, first.scalar_type(), turned ? turned_sizes : straight_sizes,
              turned ? turned_steps : straight_steps);
  constexpr int64_t kOneResult = 2, kByRows = 0, kCounts = 1, kNothing = 0;
  aclnn::grouped_matmul(rows, weights, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
                        View(counts_there(counts, x)), nullptr, nullptr, nullptr, kOneResult,
                        kByRows, kCounts, kNothing, results, nullptr, nullptr);
}

/// one(rows, group) of each group that has rows, one below the other.
template <typename One>
void group_by_group(const at::Tensor& x, const Counts& counts, const at::Tensor& out,
                    const One& one) {
  int64_t first = 0;
  for (size_t group = 0; group < counts.size(); ++group) {
    if (counts[group] > 0)
      out.narrow(0, first, counts[group]).copy_(one(x.narrow(0, first, counts[group]), group));
    first += counts[group];
  }
}

}  // namespace

at::Tensor grouped_product(const at::Tensor& x_RI, Weights weights_OI, Counts counts) {
  const at::Tensor y_RO =
      fresh(x_RI, {x_RI.size(0), weights_OI.front().size(0)}, x_RI.scalar_type());
  if (y_RO.numel() == 0) return y_RO;
  if (takes(x_RI, weights_OI)) {
    multiply_groups(x_RI.contiguous(), weights_OI, counts, /*turned=*/true, y_RO);
  } else {
    group_by_group(x_RI, counts, y_RO, [&](const at::Tensor& x_nI, size_t group) {
      return product(x_nI, weights_OI[group], {}, x_RI.scalar_type());
    });
  }
  return y_RO;
}

at::Tensor grouped_input_grad(const at::Tensor& d_y_RO, Weights weights_OI, Counts counts) {
  const at::Tensor d_x_RI =
      fresh(d_y_RO, {d_y_RO.size(0), weights_OI.front().size(1)}, d_y_RO.scalar_type());
  if (d_x_RI.numel() == 0) return d_x_RI;
  if (takes(d_y_RO, weights_OI)) {
    multiply_groups(d_y_RO.contiguous(), weights_OI, counts, /*turned=*/false, d_x_RI);
  } else {
    group_by_group(d_y_RO, counts, d_x_RI, [&](const at::Tensor& d_y_nO, size_t group) {
      return input_grad(d_y_nO, weights_OI[group], d_y_RO.scalar_type());
    });
  }
  return d_x_RI;
}

}  // namespace danlu::npu
