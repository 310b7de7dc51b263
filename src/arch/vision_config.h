// arch/vision_config.h: the vision tower of a model that sees pictures (Qwen2-VL, Qwen2.5-VL):
// patches of pixels go through blocks of attention, and a merger makes one hidden state of the
// decoder from each square of neighbouring patches.
#pragma once
#include <cstdint>
#include <vector>

namespace danlu::arch {

struct VisionConfig {
  int64_t depth = 0;      ///< blocks
  int64_t width = 0;      ///< hidden size of the blocks
  int64_t num_heads = 0;  ///< each has width / num_heads columns
  int64_t ffn_size = 0;
  int64_t channels = 3;
  int64_t patch_size = 14;          ///< pixels of a patch in height and in width
  int64_t temporal_patch_size = 2;  ///< frames of a patch; a picture is that often the same frame
  int64_t merge_size = 2;           ///< patches of a visual token in height and in width
  /// Qwen2.5-VL: RMSNorm and a gated MLP (SiLU). Otherwise LayerNorm and an MLP with quick GELU.
  bool is_gated = false;
  double norm_eps = 1e-6;
  /// Pixels of a window of attention in height and in width; 0: attention is over whole frames.
  int64_t window_size = 0;
  std::vector<int64_t> full_blocks;  ///< blocks that see whole frames in spite of a window
  /// Steps of a video's time axis in a second; 0: a step is a pair of frames, whatever their rate.
  double tokens_per_second = 0;
  int64_t image_token = 0, video_token = 0;  ///< ids that stand for one visual token each
  int64_t start_token = 0, end_token = 0;    ///< ids around a picture's or a video's tokens

  int64_t patch_columns() const { return channels * temporal_patch_size * patch_size * patch_size; }
  int64_t merged_width() const { return width * merge_size * merge_size; }
  bool sees_frame(int64_t block) const {
    if (window_size == 0) return true;
    for (const int64_t full : full_blocks) {
      if (full == block) return true;
    }
    return false;
  }
};

}  // namespace danlu::arch
