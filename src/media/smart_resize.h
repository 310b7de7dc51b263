// media/smart_resize.h: the size at which a model sees a picture: sides are multiples of `factor`,
// the area lies between two limits, the ratio of the sides stays as near as that allows.
#pragma once
#include <cstdint>

namespace danlu::media {

/// In pixels.
struct Size {
  int64_t width = 0, height = 0;
  int64_t area() const { return width * height; }
  bool operator==(const Size&) const = default;
};

/// Sides above this ratio are refused.
inline constexpr double kMaxRatio = 200;

/// Computes the size as transformers does since its 4.5x line: no side is 0, so the area may be
/// slightly above max_pixels. REQUIRES: both sides and factor > 0.
/// Errors: MediaError kBadShape if one side is more than 200 times the other.
Size smart_resize(Size from, int64_t factor, int64_t min_pixels, int64_t max_pixels);

/// Computes the size as qwen_vl_utils does: where max_pixels is small beside the ratio, a side is
/// 0, for which the caller has an error. Otherwise equal to smart_resize.
Size smart_resize_qwen_utils(Size from, int64_t factor, int64_t min_pixels, int64_t max_pixels);

}  // namespace danlu::media
