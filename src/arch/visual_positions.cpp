#include "arch/visual_positions.h"

#include <algorithm>
#include <cmath>

namespace danlu::arch {
namespace {

void add_text(int64_t count, VisualPositions& to) {
  for (std::vector<int64_t>& axis : to.axes) {
    for (int64_t i = 0; i < count; ++i) axis.push_back(to.next + i);
  }
  to.next += count;
}

void add_visual(const VisionConfig& vision, const VisualSpan& span, VisualPositions& to) {
  const int64_t height = span.grid.h / vision.merge_size, width = span.grid.w / vision.merge_size;
  // Where a model counts frames and not seconds, a step is a frame. The product is cut off last.
  const double step = span.is_video && vision.tokens_per_second > 0
                          ? span.second_per_grid * vision.tokens_per_second
                          : 1.0;
  const int64_t start = to.next;
  for (int64_t t = 0; t < span.grid.t; ++t) {
    const auto time = static_cast<int64_t>(std::floor(static_cast<double>(t) * step));
    for (int64_t h = 0; h < height; ++h) {
      for (int64_t w = 0; w < width; ++w) {
        to.axes[0].push_back(start + time);
        to.axes[1].push_back(start + h);
        to.axes[2].push_back(start + w);
        to.next = std::max(to.next, start + std::max({time, h, w}) + 1);
      }
    }
  }
}

}  // namespace

VisualPositions visual_positions(const VisionConfig& vision, int64_t length,
                                 const std::vector<VisualSpan>& spans) {
  VisualPositions result;
  for (const VisualSpan& span : spans) {
    add_text(span.begin - static_cast<int64_t>(result.axes[0].size()), result);
    add_visual(vision, span, result);
  }
  add_text(length - static_cast<int64_t>(result.axes[0].size()), result);
  return result;
}

}  // namespace danlu::arch
