#include "layers/score_head.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <cstdint>
#include <vector>

namespace danlu::layers {

at::Tensor ScoreHead::forward(const at::Tensor& hidden_nH, const at::Tensor& rows_M) const {
  // Under sequence parallelism this rank has some of the rows.
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
    return at::tensor(numbers, at::TensorOptions(at::kLong)).to(hidden_nH.device());
  };
  const at::ScalarType type = hidden_nH.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor hidden_mH = hidden_nH.index_select(0, on_device(rows)).to(type);
  at::Tensor numbers_mL = at::matmul(hidden_mH, linear.weight.tensor.to(type).t());
  if (linear.bias.defined()) numbers_mL = numbers_mL + linear.bias.tensor.to(type);
  if (!region.is_sequence()) return numbers_mL;
  const at::Tensor of_all_ML = at::zeros({rows_M.numel(), numbers_mL.size(1)}, numbers_mL.options())
                                   .index_add(0, on_device(places), numbers_mL);
  return parallel::Region(region.group(), /*sequence=*/false).leave(of_all_ML);
}

}  // namespace danlu::layers
