#include "media/sampling.h"

#include <algorithm>
#include <cmath>

#include "media/media_error.h"

namespace danlu::media {
namespace {

constexpr int64_t kFramesTogether = 2;

int64_t floored_even(double value) {
  return static_cast<int64_t>(std::floor(value / kFramesTogether)) * kFramesTogether;
}
int64_t ceiled_even(double value) {
  return static_cast<int64_t>(std::ceil(value / kFramesTogether)) * kFramesTogether;
}

/// Rounded to even neighbours, from places in float32 that are counted from the nearer end.
std::vector<int64_t> rounded_places(int64_t last, int64_t count) {
  std::vector<int64_t> places;
  const auto end = static_cast<float>(last);
  const float step = count > 1 ? end / static_cast<float>(count - 1) : 0.0f;
  for (int64_t i = 0; i < count; ++i) {
    const float place = i < count / 2 ? step * static_cast<float>(i)
                                      : end - step * static_cast<float>(count - 1 - i);
    places.push_back(static_cast<int64_t>(std::nearbyint(count > 1 ? place : 0.0f)));
  }
  return places;
}

/// Cut off, from places in float64.
std::vector<int64_t> cut_places(int64_t last, int64_t count) {
  std::vector<int64_t> places;
  const double step = count > 1 ? static_cast<double>(last) / static_cast<double>(count - 1) : 0.0;
  for (int64_t i = 0; i < count; ++i) {
    const bool is_end = count > 1 && i + 1 == count;
    places.push_back(is_end ? last : static_cast<int64_t>(static_cast<double>(i) * step));
  }
  return places;
}

FrameChoice choose_as_qwen_utils(const VideoFacts& video, const VideoRule& rule) {
  const int64_t count = qwen_utils_num_frames(video.total_frames, video.frames_per_second, rule);
  const double share =
      static_cast<double>(count) / std::max(static_cast<double>(video.total_frames), 1e-6);
  return {rounded_places(video.total_frames - 1, count), share * video.frames_per_second};
}

FrameChoice choose_as_trainers(const VideoFacts& video, const VideoRule& rule) {
  FrameChoice choice;
  if (video.total_frames == 0) {
    if (rule.tool == PreResizeRule::kMindSpeed20) {
      throw MediaError(MediaFault::kBadShape,
                       tr("the video does not say how many frames it has: MindSpeed-MM 2.0 takes "
                          "none of it"),
                       tr("convert it to MP4"));
    }
    choice.indices = cut_places(rule.max_frames - 1, rule.max_frames);
  } else {
    // Without a duration every frame would be wanted.
    const double wanted =
        video.duration_s ? *video.duration_s * rule.fps : static_cast<double>(video.total_frames);
    auto count = static_cast<int64_t>(std::floor(std::min(wanted, 1e15)));
    if (rule.tool != PreResizeRule::kMindSpeed20) count = std::max<int64_t>(count, 1);
    count = std::min({count, video.total_frames, rule.max_frames});
    if (count < 1) {
      throw MediaError(MediaFault::kBadShape,
                       tr("the video lasts {:.3f} s: at {} frames a second none is taken",
                          video.duration_s.value_or(0), rule.fps),
                       tr("ask for more frames a second"));
    }
    choice.indices = cut_places(video.total_frames - 1, count);
  }
  const bool measured = rule.tool != PreResizeRule::kMindSpeed20 && video.duration_s.has_value() &&
                        *video.duration_s > 0;
  choice.fps = measured ? static_cast<double>(choice.indices.size()) / *video.duration_s : rule.fps;
  return choice;
}

}  // namespace

VideoRule VideoRule::llama_factory() {
  VideoRule rule;
  rule.tool = PreResizeRule::kLlamaFactory;
  rule.max_frames = 128;
  rule.min_pixels = 16 * 16;
  rule.max_pixels = 256 * 256;
  return rule;
}

VideoRule VideoRule::mindspeed20() {
  VideoRule rule;
  rule.tool = PreResizeRule::kMindSpeed20;
  rule.max_frames = 64;
  rule.min_pixels = 0;
  rule.max_pixels = 128 * 128;
  return rule;
}

VideoRule VideoRule::mindspeed21() {
  VideoRule rule = llama_factory();
  rule.tool = PreResizeRule::kMindSpeed21;
  return rule;
}

int64_t qwen_utils_num_frames(int64_t total_frames, double video_fps, const VideoRule& rule) {
  int64_t count = 0;
  const auto total = static_cast<double>(total_frames);
  if (rule.num_frames > 0) {
    count = static_cast<int64_t>(
                std::nearbyint(static_cast<double>(rule.num_frames) / kFramesTogether)) *
            kFramesTogether;
  } else if (video_fps > 0) {
    const auto least = static_cast<double>(ceiled_even(static_cast<double>(rule.min_frames)));
    const auto most = static_cast<double>(
        floored_even(static_cast<double>(std::min(rule.max_frames, total_frames))));
    const double wanted = total / video_fps * rule.fps;
    count = floored_even(std::min(std::min(std::max(wanted, least), most), total));
  }
  if (count < kFramesTogether || count > total_frames) {
    throw MediaError(MediaFault::kBadShape,
                     tr("{} frames of a video that has {} cannot be taken: from {} on, and no more "
                        "than it has",
                        count, total_frames, kFramesTogether));
  }
  return count;
}

FrameChoice choose_frames(const VideoFacts& video, const VideoRule& rule) {
  if (!(rule.fps > 0) || rule.max_frames < 1) {
    throw UsageError(tr("videos need at least one frame, and more than 0 frames a second"));
  }
  return rule.tool == PreResizeRule::kQwenUtils ? choose_as_qwen_utils(video, rule)
                                                : choose_as_trainers(video, rule);
}

PreResize pre_resize_of_frames(const VideoRule& rule, int64_t num_frames) {
  if (rule.tool != PreResizeRule::kQwenUtils) {
    return {rule.tool, rule.min_pixels, rule.max_pixels};
  }
  const double share = rule.total_pixels / static_cast<double>(num_frames) * kFramesTogether;
  const double limit = std::max(std::min(static_cast<double>(rule.frame_pixels), share),
                                std::floor(static_cast<double>(rule.min_pixels) * 1.05));
  const auto max_pixels = static_cast<int64_t>(limit);
  return {rule.tool, rule.min_pixels, std::min(max_pixels, rule.max_pixels)};
}

}  // namespace danlu::media
