// media/sampling.h: which frames of a video are used, by the rules of each tool. No file is
// touched.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "media/processor.h"

namespace danlu::media {

/// What a video says of itself.
struct VideoFacts {
  Size size;                         ///< pixels of a frame
  int64_t total_frames = 0;          ///< 0: the container does not say
  double frames_per_second = 0;      ///< average
  std::optional<double> duration_s;  ///< of the stream; nothing: the container does not say
  /// How the camera was held, as EXIF's orientation; of files that say a quarter or half turn.
  int orientation = 1;

  /// A frame as a player shows it.
  Size upright() const { return orientation >= 5 ? Size{size.height, size.width} : size; }
};

/// What a tool is told about videos; the fields that its rule does not have are not read.
struct VideoRule {
  PreResizeRule tool = PreResizeRule::kQwenUtils;  ///< not kNone
  double fps = 2;                                  ///< frames wanted of each second
  int64_t min_frames = 4;                          ///< qwen_vl_utils
  int64_t max_frames = 768;  ///< qwen_vl_utils; the others' video_maxlen (128, MindSpeed-MM 2.0 64)
  int64_t num_frames = 0;    ///< qwen_vl_utils' nframes; 0: by fps
  int64_t min_pixels = 128 * 784;            ///< areas, of a frame; the others' video_min_pixels
  int64_t max_pixels = 768 * 784;            ///< the others' video_max_pixels
  double total_pixels = 128000 * 784 * 0.9;  ///< qwen_vl_utils, of all frames together
  /// qwen_vl_utils' own limit of a frame. Unlike max_pixels it gives way to the least area.
  int64_t frame_pixels = 768 * 784;
  /// Frames are turned as the container says, as by qwen_vl_utils' reader decord; those of the
  /// others (PyAV) leave them.
  bool upright = false;

  static VideoRule qwen_utils() { return {}; }
  static VideoRule llama_factory();
  static VideoRule mindspeed20();
  static VideoRule mindspeed21();
};

struct FrameChoice {
  std::vector<int64_t> indices;  ///< ascending; may name frames that a video without a count lacks
  double fps = 0;                ///< of the chosen frames, as the model is told
};

/// Frames that are used of a video. Errors: MediaError kBadShape: too few frames, or a rule that
/// chooses none.
FrameChoice choose_frames(const VideoFacts& video, const VideoRule& rule);

/// The number of frames that qwen_vl_utils takes. Errors: MediaError kBadShape unless it lies
/// between 2 and total_frames.
int64_t qwen_utils_num_frames(int64_t total_frames, double video_fps, const VideoRule& rule);

/// How each of num_frames frames is resized before the processor; num_frames counts the repeated
/// one.
PreResize pre_resize_of_frames(const VideoRule& rule, int64_t num_frames);

/// Seconds between two entries of the grid's time axis.
inline double second_per_grid(double fps, const ImageProcessor& processor) {
  return static_cast<double>(processor.temporal_patch_size) / fps;
}

}  // namespace danlu::media
