// arch/visual_positions.h: rotary positions of a text with pictures and videos: in time, in height
// and in width (Qwen2-VL, arXiv:2409.12191 §2.1, M-RoPE).
#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "arch/vision_config.h"
#include "media/grid.h"

namespace danlu::arch {

/// The placeholders of one picture or video in a sequence.
struct VisualSpan {
  int64_t begin = 0;  ///< the first placeholder's place in the sequence
  media::Grid grid;   ///< in patches
  bool is_video = false;
  double second_per_grid = 1;  ///< of a video: seconds between neighbours in time
};

/// positions[axis][token], axes in the order time, height, width.
struct VisualPositions {
  std::array<std::vector<int64_t>, 3> axes;
  int64_t next = 0;  ///< the position of a token after them: one more than the largest
};

/// Makes the positions of a sequence of `length` tokens. Text counts on all three axes alike. A
/// picture's tokens begin where the text is and count frames, rows and columns from there; text
/// after them goes on from the largest. REQUIRES: spans ascend and lie in the sequence; merge_size
/// divides the grids.
VisualPositions visual_positions(const VisionConfig& vision, int64_t length,
                                 const std::vector<VisualSpan>& spans);

}  // namespace danlu::arch
