#include "media/smart_resize.h"

#include <algorithm>
#include <cmath>

#include "media/media_error.h"

namespace danlu::media {
namespace {

/// Halves go to the even neighbour, as Python's round does.
int64_t nearest_multiple(int64_t side, int64_t factor) {
  const auto quotient = static_cast<double>(side) / static_cast<double>(factor);
  return static_cast<int64_t>(std::nearbyint(quotient)) * factor;
}

Size resized_into(Size from, int64_t factor, int64_t min_pixels, int64_t max_pixels,
                  int64_t least_before, int64_t least_after) {
  const auto height = static_cast<double>(from.height), width = static_cast<double>(from.width);
  const auto f = static_cast<double>(factor);
  const double ratio = std::max(height, width) / std::min(height, width);
  if (ratio > kMaxRatio) {
    throw MediaError(MediaFault::kBadShape,
                     tr("a picture of {} x {} pixels: one side is more than {} times the other",
                        from.width, from.height, static_cast<int64_t>(kMaxRatio)));
  }
  Size to{std::max(least_before, nearest_multiple(from.width, factor)),
          std::max(least_before, nearest_multiple(from.height, factor))};
  if (to.area() > max_pixels) {
    const double beta = std::sqrt(height * width / static_cast<double>(max_pixels));
    to.height = static_cast<int64_t>(std::floor(height / beta / f)) * factor;
    to.width = static_cast<int64_t>(std::floor(width / beta / f)) * factor;
    to = {std::max(least_after, to.width), std::max(least_after, to.height)};
  } else if (to.area() < min_pixels) {
    const double beta = std::sqrt(static_cast<double>(min_pixels) / (height * width));
    to.height = static_cast<int64_t>(std::ceil(height * beta / f)) * factor;
    to.width = static_cast<int64_t>(std::ceil(width * beta / f)) * factor;
  }
  return to;
}

}  // namespace

Size smart_resize(Size from, int64_t factor, int64_t min_pixels, int64_t max_pixels) {
  Size to = resized_into(from, factor, min_pixels, max_pixels, 0, factor);
  // Reached only where min_pixels is below one cell: rounding gave 0 and nothing mended it.
  return {std::max(factor, to.width), std::max(factor, to.height)};
}

Size smart_resize_qwen_utils(Size from, int64_t factor, int64_t min_pixels, int64_t max_pixels) {
  return resized_into(from, factor, min_pixels, max_pixels, factor, 0);
}

}  // namespace danlu::media
