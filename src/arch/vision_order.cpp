#include "arch/vision_order.h"

#include <algorithm>

namespace danlu::arch {
namespace {

/// A rectangle of visual tokens of one frame.
struct Window {
  int64_t row, rows, column, columns;
};

std::vector<Window> windows_of(int64_t height, int64_t width, int64_t side) {
  std::vector<Window> windows;
  for (int64_t row = 0; row < height; row += side) {
    for (int64_t column = 0; column < width; column += side)
      windows.push_back(
          {row, std::min(side, height - row), column, std::min(side, width - column)});
  }
  return windows;
}

}  // namespace

VisionOrder vision_order(const VisionConfig& vision, const std::vector<media::Grid>& grids) {
  VisionOrder result;
  result.frame_starts = result.window_starts = {0};
  const int64_t merge = vision.merge_size;
  const int64_t side = vision.window_size / (vision.patch_size * merge);  // in visual tokens
  int64_t before = 0;  // visual tokens of the frames so far
  for (const media::Grid& grid : grids) {
    const int64_t height = grid.h / merge, width = grid.w / merge;
    // Without windows a frame is one.
    const std::vector<Window> windows =
        windows_of(height, width, side > 0 ? side : std::max(height, width));
    for (int64_t frame = 0; frame < grid.t; ++frame) {
      for (const Window& window : windows) {
        for (int64_t row = window.row; row < window.row + window.rows; ++row) {
          for (int64_t column = window.column; column < window.column + window.columns; ++column) {
            result.order.push_back(before + row * width + column);
            for (int64_t patch = 0; patch < merge * merge; ++patch) {
              result.rows.push_back(row * merge + patch / merge);
              result.columns.push_back(column * merge + patch % merge);
            }
          }
        }
        result.window_starts.push_back(result.patches());
      }
      before += height * width;
      result.frame_starts.push_back(result.patches());
    }
  }
  if (std::is_sorted(result.order.begin(), result.order.end())) result.order.clear();
  return result;
}

}  // namespace danlu::arch
