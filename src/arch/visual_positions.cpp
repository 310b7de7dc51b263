#include "arch/visual_positions.h"

#include <algorithm>

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
  // Where a model counts frames and not seconds, a step is a frame. In f32, factor by factor, as
  // Hugging Face's code: where the exact product is a whole number, rounding decides which step.
  const bool counts_seconds = span.is_video && vision.tokens_per_second > 0;
  const auto seconds = static_cast<float>(counts_seconds ? span.second_per_grid : 1.0);
  const auto per_second = static_cast<float>(counts_seconds ? vision.tokens_per_second : 1.0);
  const int64_t start = to.next;
  for (int64_t t = 0; t < span.grid.t; ++t) {
    const auto time = static_cast<int64_t>(static_cast<float>(t) * seconds * per_second);
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
