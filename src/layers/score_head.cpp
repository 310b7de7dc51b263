#include "layers/score_head.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/tensor.h>

#include <cstdint>
#include <vector>

#include "device/sent.h"
#include "ops/linear.h"
#include "ops/pointwise.h"

namespace danlu::layers {
namespace {

/// The asked rows that this rank has: under sequence parallelism some of them.
struct OwnRows {
  at::Tensor rows_m, places_m;  ///< of its hidden states, and among the asked ones
  /// In f32, or f64 of f64.
  at::Tensor taken_from(const at::Tensor& hidden_nH) const {
    const at::ScalarType type = hidden_nH.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    return ops::take_rows(hidden_nH, rows_m).to(type);
  }
};

OwnRows own_rows(const at::Tensor& hidden_nH, const at::Tensor& rows_M,
                 const parallel::Region& region) {
  const int64_t own = hidden_nH.size(0),
                first = region.is_sequence() ? region.group().rank() * own : 0;
  std::vector<int64_t> rows, places;
  const int64_t* asked = rows_M.data_ptr<int64_t>();
  for (int64_t i = 0; i < rows_M.numel(); ++i) {
    const int64_t row = asked[i] - first;
    if (row < 0 || row >= own) continue;
    rows.push_back(row);
    places.push_back(i);
  }
  const auto on_device = [&](const std::vector<int64_t>& numbers) {
    return device::sent(at::tensor(numbers, at::TensorOptions(at::kLong)), hidden_nH.device());
  };
  return {on_device(rows), on_device(places)};
}

/// What each rank of a sequence has of its rows, as all asked rows on every rank.
at::Tensor of_all_rows(const at::Tensor& own_mX, const OwnRows& own, const at::Tensor& rows_M,
                       const parallel::Region& region) {
  if (!region.is_sequence()) return ops::as_numbers(own_mX);
  const at::Tensor of_all_MX = ops::rows_summed(own_mX, own.places_m, rows_M.numel());
  return ops::as_numbers(parallel::Region(region.group(), /*sequence=*/false).leave(of_all_MX));
}

}  // namespace

at::Tensor vectors_of_rows(const at::Tensor& hidden_nH, const at::Tensor& rows_M,
                           const parallel::Region& region) {
  const OwnRows own = own_rows(hidden_nH, rows_M, region);
  return of_all_rows(own.taken_from(hidden_nH), own, rows_M, region);
}

at::Tensor numbers_of_rows(const at::Tensor& hidden_nH, const at::Tensor& rows_M,
                           const at::Tensor& weight_LH, const at::Tensor& bias_L,
                           const parallel::Region& region) {
  const OwnRows own = own_rows(hidden_nH, rows_M, region);
  const at::Tensor hidden_mH = own.taken_from(hidden_nH);
  const at::ScalarType type = hidden_mH.scalar_type();
  at::Tensor numbers_mL = ops::linear(hidden_mH, weight_LH.to(type));
  if (bias_L.defined()) numbers_mL = ops::add_bias(numbers_mL, bias_L.to(type));
  return of_all_rows(numbers_mL, own, rows_M, region);
}

at::Tensor ScoreHead::forward(const at::Tensor& hidden_nH, const at::Tensor& rows_M) const {
  if (!dense.defined())
    return numbers_of_rows(hidden_nH, rows_M, linear.weight.tensor, linear.bias.tensor, region);
  const at::Tensor read_MH = vectors_of_rows(hidden_nH, rows_M, region);
  const at::ScalarType type = read_MH.scalar_type();
  const auto through = [type](const at::Tensor& x, const Linear& layer) {
    return ops::add_bias(ops::linear(x, layer.weight.tensor.to(type)), layer.bias.tensor.to(type));
  };
  return ops::as_numbers(through(at::tanh(through(read_MH, dense)), linear));
}

}  // namespace danlu::layers
