#include "parallel/parameter.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>

#include <algorithm>

namespace danlu::parallel {

std::vector<Piece> pieces_of(const arch::ModelConfig& config, const arch::ParamSpec& spec,
                             const arch::Coord& coord) {
  std::vector<Piece> pieces;
  for (const arch::Rect& rect : arch::shard(config, spec, coord)) pieces.push_back({rect, 0});
  for (arch::Coord other = coord; Piece & piece : pieces) {
    for (other.tp_rank = 0; other.tp_rank < other.tp_size; ++other.tp_rank) {
      const auto theirs = arch::shard(config, spec, other);
      piece.copies += std::count(theirs.begin(), theirs.end(), piece.rect);
    }
  }
  return pieces;
}

std::vector<int64_t> joined_shape(const std::vector<int64_t>& whole,
                                  const std::vector<Piece>& pieces) {
  if (whole.empty()) return whole;
  std::vector<int64_t> shape = whole;
  shape[0] = 0;
  for (const Piece& piece : pieces) shape[0] += piece.rect.rows;
  if (shape.size() == 2 && !pieces.empty()) shape[1] = pieces.front().rect.cols;
  return shape;
}

at::Tensor cut_out(const at::Tensor& whole, const std::vector<Piece>& pieces) {
  if (whole.dim() == 0) return whole.clone();
  std::vector<at::Tensor> parts;
  for (const Piece& piece : pieces) {
    const at::Tensor rows = whole.narrow(0, piece.rect.row, piece.rect.rows);
    parts.push_back(whole.dim() < 2 ? rows : rows.narrow(1, piece.rect.col, piece.rect.cols));
  }
  return parts.empty() ? whole.narrow(0, 0, 0).clone() : at::cat(parts).contiguous();
}

std::vector<Piece> pieces_of(const Parameter& parameter, const Range& held) {
  std::vector<Piece> pieces;
  int64_t begin = 0;
  for (const Piece& piece : parameter.pieces) {
    const auto& [row, rows, col, cols] = piece.rect;
    Range part = overlap_in({begin, begin + rows * cols}, held);
    begin += rows * cols;
    while (part.size() > 0) {
      const int64_t first = part.begin / cols, within = part.begin % cols;
      const bool whole_rows = within == 0 && part.size() >= cols;
      const int64_t height = whole_rows ? part.size() / cols : 1;
      const int64_t width = whole_rows ? cols : std::min(cols - within, part.size());
      pieces.push_back({{row + first, height, col + within, width}, piece.copies});
      part.begin += height * width;
    }
  }
  return pieces;
}

Parameter whole_parameter(const std::string& name, const at::Tensor& tensor) {
  Parameter parameter;
  parameter.spec.name = name;
  parameter.spec.split = arch::Split::kCopiedBetween;
  parameter.spec.shape = tensor.sizes().vec();
  parameter.pieces = {{arch::matrix_of(parameter.spec.shape), 1}};
  parameter.tensor = tensor;
  return parameter;
}

}  // namespace danlu::parallel
