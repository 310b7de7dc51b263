// media/grid.h: how many patches a picture or a video becomes.
#pragma once
#include <cstdint>

namespace danlu::media {

/// In patches, before neighbours are merged; a picture has t = 1, a video of n frames t = n/2.
struct Grid {
  int64_t t = 0, h = 0, w = 0;

  int64_t patches() const { return t * h * w; }
  /// Placeholders in the text, where merge_size x merge_size patches become one token.
  int64_t visual_tokens(int64_t merge_size) const { return patches() / (merge_size * merge_size); }
  bool operator==(const Grid&) const = default;
};

}  // namespace danlu::media
