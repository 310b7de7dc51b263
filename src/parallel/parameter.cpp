#include "parallel/parameter.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <limits>
#include <memory>

namespace danlu::parallel {

std::vector<HeldRect> held_rects(const arch::ModelConfig& config, const arch::ParamSpec& spec,
                                 const arch::Coord& coord) {
  std::vector<HeldRect> rects;
  for (const arch::Rect& rect : arch::shard(config, spec, coord)) rects.push_back({rect, 0});
  for (arch::Coord other = coord; HeldRect & held_rect : rects) {
    for (other.tp_rank = 0; other.tp_rank < other.tp_size; ++other.tp_rank) {
      const auto theirs = arch::shard(config, spec, other);
      held_rect.holders += std::count(theirs.begin(), theirs.end(), held_rect.rect);
    }
  }
  return rects;
}

std::vector<int64_t> joined_shape(const std::vector<int64_t>& whole,
                                  const std::vector<HeldRect>& rects) {
  if (whole.empty()) return whole;
  std::vector<int64_t> shape = whole;
  shape[0] = 0;
  for (const HeldRect& held_rect : rects) shape[0] += held_rect.rect.rows;
  if (shape.size() == 2 && !rects.empty()) shape[1] = rects.front().rect.cols;
  return shape;
}

at::Tensor cut_out(const at::Tensor& whole, const std::vector<HeldRect>& rects) {
  if (whole.dim() == 0) return whole.clone();
  // A rectangle is of the matrix that has all other sizes as columns.
  const at::Tensor matrix = whole.dim() > 2 ? whole.reshape({whole.size(0), -1}) : whole;
  std::vector<at::Tensor> parts;
  for (const HeldRect& held_rect : rects) {
    const arch::Rect& rect = held_rect.rect;
    const at::Tensor rows = matrix.narrow(0, rect.row, rect.rows);
    parts.push_back(matrix.dim() < 2 ? rows : rows.narrow(1, rect.col, rect.cols));
  }
  const at::Tensor joined =
      parts.empty() ? matrix.narrow(0, 0, 0).clone() : at::cat(parts).contiguous();
  if (whole.dim() <= 2 || joined.size(1) != matrix.size(1)) return joined;
  std::vector<int64_t> shape = whole.sizes().vec();
  shape[0] = joined.size(0);
  return joined.view(shape);
}

void for_each_fixed(const Parameter& parameter, const at::Tensor& joined_RC,
                    const std::function<void(const at::Tensor&)>& visit) {
  if (!parameter.fixed) return;
  const arch::Rect& fixed = *parameter.fixed;
  for_each_rect(parameter, joined_RC, [&](const HeldRect& held, const at::Tensor& rows) {
    const Range high = overlap_in({held.rect.row, held.rect.row + held.rect.rows},
                                  {fixed.row, fixed.row + fixed.rows});
    const Range wide = overlap_in({held.rect.col, held.rect.col + held.rect.cols},
                                  {fixed.col, fixed.col + fixed.cols});
    if (high.size() == 0 || wide.size() == 0) return;
    visit(rows.narrow(0, high.begin, high.size()).narrow(1, wide.begin, wide.size()));
  });
}

at::Tensor put_together(const Group& tensor, const Parameter& parameter,
                        const at::Tensor& joined_RC) {
  const bool is_whole = parameter.rects.size() == 1 &&
                        parameter.rects.front().rect == arch::matrix_of(parameter.spec.shape);
  if (is_whole) return joined_RC;
  // The larger of a value and of nothing is the value.
  at::Tensor whole_RC = at::full(parameter.spec.shape, -std::numeric_limits<float>::infinity(),
                                 joined_RC.options().dtype(at::kFloat));
  for_each_rect(parameter, joined_RC, [&](const HeldRect& held, const at::Tensor& rows) {
    const at::Tensor high = whole_RC.narrow(0, held.rect.row, held.rect.rows);
    at::Tensor(high.dim() < 2 ? high : high.narrow(1, held.rect.col, held.rect.cols)).copy_(rows);
  });
  tensor.all_reduce_max(whole_RC);
  return whole_RC;
}

std::vector<HeldRect> held_rects(const Parameter& parameter, const Range& held) {
  std::vector<HeldRect> rects;
  int64_t begin = 0;
  for (const HeldRect& held_rect : parameter.rects) {
    const auto& [row, rows, col, cols] = held_rect.rect;
    Range part = overlap_in({begin, begin + rows * cols}, held);
    begin += rows * cols;
    while (part.size() > 0) {
      const int64_t first = part.begin / cols, within = part.begin % cols;
      const bool whole_rows = within == 0 && part.size() >= cols;
      const int64_t height = whole_rows ? part.size() / cols : 1;
      const int64_t width = whole_rows ? cols : std::min(cols - within, part.size());
      rects.push_back({{row + first, height, col + within, width}, held_rect.holders});
      part.begin += height * width;
    }
  }
  return rects;
}

at::Tensor Parameter::held() const {
  const ops::Nf4Weight* const nf4 = quantized ? ops::nf4_of(*quantized) : nullptr;
  return nf4 ? nf4->bytes() : tensor;
}

void Parameter::hold(const at::Tensor& memory) {
  const ops::Nf4Weight* const nf4 = quantized ? ops::nf4_of(*quantized) : nullptr;
  if (!nf4) {
    tensor = memory;
    return;
  }
  quantized = std::make_shared<ops::Nf4Weight>(ops::Nf4Matrix{nf4->matrix().layout, memory});
}

Parameter whole_parameter(const std::string& name, const at::Tensor& tensor) {
  Parameter parameter;
  parameter.spec.name = name;
  parameter.spec.cut = arch::Cut::kCopiedBetween;
  parameter.spec.shape = tensor.sizes().vec();
  parameter.rects = {{arch::matrix_of(parameter.spec.shape), 1}};
  parameter.tensor = tensor;
  return parameter;
}

}  // namespace danlu::parallel
