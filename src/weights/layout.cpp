#include "weights/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "base/error.h"

namespace danlu::weights {
namespace {

/// A rectangle by its corners, [begin, end).
struct Corners {
  int64_t row, row_end, col, col_end;
};

[[noreturn]] void fail(const std::string& name, const std::string& what) {
  throw InternalError(fmt::format("[layout] {}: {}", name, what));
}

/// Errors: unless the rectangles cover rows x cols exactly once.
void check_cover(const std::string& name, std::vector<Corners> parts, int64_t rows, int64_t cols) {
  int64_t area = 0;
  for (const Corners& part : parts) {
    if (part.row < 0 || part.col < 0 || part.row_end > rows || part.col_end > cols)
      fail(name, fmt::format("a piece reaches outside {} x {}", rows, cols));
    area += (part.row_end - part.row) * (part.col_end - part.col);
  }
  if (area != rows * cols)
    fail(name, fmt::format("pieces cover {} of {} elements", area, rows * cols));
  // Equal area and no overlap is a cover. Sorted by row, only neighbours in a band can overlap.
  std::sort(parts.begin(), parts.end(), [](const Corners& a, const Corners& b) {
    return std::tie(a.row, a.col) < std::tie(b.row, b.col);
  });
  for (size_t i = 0; i < parts.size(); ++i) {
    for (size_t j = i + 1; j < parts.size() && parts[j].row < parts[i].row_end; ++j) {
      if (parts[j].col < parts[i].col_end && parts[i].col < parts[j].col_end)
        fail(name, fmt::format("two pieces overlap at row {}", parts[j].row));
    }
  }
}

}  // namespace

uint64_t StoredTensor::size_bytes() const {
  if (encoding == Encoding::kQ8_0) return static_cast<uint64_t>(info.num_elements()) / 32 * 34;
  return info.size_bytes();
}

Section whole_section(const TensorInfo& info) {
  const Rect matrix = matrix_of(info.shape);
  return {.rows = matrix.rows, .cols = matrix.cols};
}

StoredTensor whole_tensor(size_t file, std::string name, size_t global, const TensorInfo& info) {
  StoredTensor stored{.file = file, .info = info};
  stored.info.name = std::move(name);
  Section section = whole_section(info);
  section.pieces.push_back({.global = global, .of = matrix_of(info.shape)});
  stored.sections.push_back(std::move(section));
  return stored;
}

void check_layout(const Layout& layout) {
  std::vector<std::vector<Corners>> shown(layout.globals.size());
  for (const StoredTensor& stored : layout.tensors) {
    int64_t position = 0;
    for (const Section& section : stored.sections) {
      if (section.first < position ||
          section.first + section.rows * section.cols > stored.info.num_elements())
        fail(stored.info.name, "its sections overlap or reach beyond it");
      position = section.first + section.rows * section.cols;
      std::vector<Corners> parts;
      for (const Piece& piece : section.pieces) {
        if (piece.global >= layout.globals.size()) fail(stored.info.name, "no such global tensor");
        parts.push_back({piece.row, piece.row + piece.stored_rows(), piece.col,
                         piece.col + piece.stored_cols()});
        if (!piece.replica) {
          shown[piece.global].push_back({piece.of.row, piece.of.row + piece.of.rows, piece.of.col,
                                         piece.of.col + piece.of.cols});
        }
      }
      check_cover(stored.info.name, std::move(parts), section.rows, section.cols);
    }
  }
  for (size_t i = 0; i < shown.size(); ++i) {
    const Rect matrix = matrix_of(layout.globals[i].shape);
    check_cover(layout.globals[i].name, std::move(shown[i]), matrix.rows, matrix.cols);
  }
}

}  // namespace danlu::weights
