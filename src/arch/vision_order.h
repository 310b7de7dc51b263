// arch/vision_order.h: in which order the patches of pictures go through a vision tower, and which
// of them see each other.
#pragma once
#include <cstdint>
#include <vector>

#include "arch/vision_config.h"
#include "media/grid.h"

namespace danlu::arch {

/// Patches come square by square: the merge_size² patches that become one visual token follow each
/// other. With window attention the squares of a window follow each other too.
struct VisionOrder {
  /// order[i]: the visual token whose patches go i-th, counted over all pictures in the order of
  /// their rows. Empty: in that order already.
  std::vector<int64_t> order;
  /// Row and column of each patch in its frame, as they go.
  std::vector<int64_t> rows, columns;
  /// Where frames and windows start among the patches as they go, and their end. A pair of frames
  /// of a video counts as one frame.
  std::vector<int64_t> frame_starts, window_starts;

  int64_t patches() const { return static_cast<int64_t>(rows.size()); }
};

/// The order for all pictures and videos of a pass, one after another. REQUIRES: merge_size divides
/// the height and the width of each grid.
/// Source  Qwen2.5-VL's report (arXiv:2502.13923 §2.1) for windows. A window is cut from the
/// corner;
///         those at the right and at the bottom are smaller.
VisionOrder vision_order(const VisionConfig& vision, const std::vector<media::Grid>& grids);

}  // namespace danlu::arch
