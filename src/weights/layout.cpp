#include "weights/layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
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

int64_t area_of(const std::string& name, int64_t rows, int64_t cols) {
  int64_t area = 0;
  if (__builtin_mul_overflow(rows, cols, &area))
    fail(name, tr("{} x {} elements are impossible", rows, cols));
  return area;
}

/// Goes down the rows and keeps, by first column, the rectangles that may reach the row at hand:
/// they are disjoint in columns but for those that ended above, which are dropped when met.
void check_disjoint(const std::string& name, std::vector<Corners> parts) {
  std::erase_if(parts, [](const Corners& p) { return p.row == p.row_end || p.col == p.col_end; });
  std::sort(parts.begin(), parts.end(), [](const Corners& a, const Corners& b) {
    return std::tie(a.row, a.col) < std::tie(b.row, b.col);
  });
  std::map<int64_t, const Corners*> open;
  for (const Corners& part : parts) {
    auto at = open.lower_bound(part.col);
    if (at != open.begin() && std::prev(at)->second->col_end > part.col) --at;
    while (at != open.end() && at->second->col < part.col_end) {
      if (at->second->row_end > part.row) fail(name, tr("two pieces overlap at row {}", part.row));
      at = open.erase(at);
    }
    open.emplace(part.col, &part);
  }
}

/// Errors: unless the rectangles cover rows x cols exactly once.
void check_cover(const std::string& name, std::vector<Corners> parts, int64_t rows, int64_t cols) {
  int64_t area = 0;
  for (const Corners& part : parts) {
    if (part.row < 0 || part.col < 0 || part.row_end > rows || part.col_end > cols ||
        part.row > part.row_end || part.col > part.col_end)
      fail(name, tr("a piece reaches outside {} x {}", rows, cols));
    const int64_t own = area_of(name, part.row_end - part.row, part.col_end - part.col);
    if (__builtin_add_overflow(area, own, &area)) fail(name, "pieces overlap");
  }
  const int64_t whole = area_of(name, rows, cols);
  if (area != whole) fail(name, tr("pieces cover {} of {} elements", area, whole));
  // Equal area and no overlap is a cover.
  check_disjoint(name, std::move(parts));
}

}  // namespace

uint64_t StoredTensor::size_bytes() const {
  if (blocks) return block_bytes(*blocks, static_cast<size_t>(info.num_elements()));
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
      const int64_t size = area_of(stored.info.name, section.rows, section.cols);
      if (section.first < position || size > stored.info.num_elements() - section.first)
        fail(stored.info.name, "its sections overlap or reach beyond it");
      position = section.first + size;
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
