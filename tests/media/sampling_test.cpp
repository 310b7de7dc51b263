// Which frames each tool takes, worked out by hand.
#include "media/sampling.h"

#include <gtest/gtest.h>

#include "media/media_error.h"

namespace danlu::media {
namespace {

using Indices = std::vector<int64_t>;

VideoFacts facts(int64_t total, double fps, std::optional<double> duration_s) {
  return {{640, 480}, total, fps, duration_s};
}

TEST(Sampling, QwenUtilsRoundsPlacesAndTakesEvenNumbers) {
  // 100 frames of 25 a second are 4 s: 8 frames at 2 a second, 99/7 = 14.14 apart.
  const FrameChoice choice = choose_frames(facts(100, 25, 4.0), VideoRule::qwen_utils());
  EXPECT_EQ(choice.indices, (Indices{0, 14, 28, 42, 57, 71, 85, 99}));
  EXPECT_DOUBLE_EQ(choice.fps, 8.0 / 100 * 25);
  VideoRule rule;
  rule.num_frames = 5;  // 2.5 pairs are 2
  EXPECT_EQ(choose_frames(facts(100, 25, 4.0), rule).indices, (Indices{0, 33, 66, 99}));
  rule.num_frames = 3;
  // 0, 1.5 pairs are 2: 0, 10/3, 20/3, 10.
  EXPECT_EQ(choose_frames(facts(11, 25, 1.0), rule).indices, (Indices{0, 3, 7, 10}));
  // 0.4 frames are wanted and min_frames, 4, taken: places 0, 1.33, 2.67, 4.
  EXPECT_EQ(choose_frames(facts(5, 25, 0.2), VideoRule::qwen_utils()).indices,
            (Indices{0, 1, 3, 4}));
}

TEST(Sampling, QwenUtilsNeedsTwoFrames) {
  EXPECT_THROW(choose_frames(facts(1, 25, 0.04), VideoRule::qwen_utils()), MediaError);
  VideoRule rule;
  rule.num_frames = 12;
  EXPECT_THROW(choose_frames(facts(11, 25, 1.0), rule), MediaError);
  rule.num_frames = 0;
  rule.max_frames = 6;
  EXPECT_EQ(qwen_utils_num_frames(1000, 10, rule), 6);
}

TEST(Sampling, TrainersCutPlacesOff) {
  // 2.9 s at 2 a second: 5 frames; 99/4 = 24.75 apart.
  const VideoFacts video = facts(100, 34.48, 2.9);
  EXPECT_EQ(choose_frames(video, VideoRule::llama_factory()).indices, (Indices{0, 24, 49, 74, 99}));
  EXPECT_EQ(choose_frames(video, VideoRule::mindspeed20()).indices, (Indices{0, 24, 49, 74, 99}));
  EXPECT_DOUBLE_EQ(choose_frames(video, VideoRule::llama_factory()).fps, 5 / 2.9);
  EXPECT_DOUBLE_EQ(choose_frames(video, VideoRule::mindspeed21()).fps, 5 / 2.9);
  EXPECT_DOUBLE_EQ(choose_frames(video, VideoRule::mindspeed20()).fps, 2);
  VideoRule few = VideoRule::llama_factory();
  few.max_frames = 2;
  EXPECT_EQ(choose_frames(video, few).indices, (Indices{0, 99}));
}

TEST(Sampling, ShortVideosAndUnknownLengths) {
  const VideoFacts shorter = facts(9, 25, 0.36);
  EXPECT_EQ(choose_frames(shorter, VideoRule::llama_factory()).indices, (Indices{0}));
  EXPECT_EQ(choose_frames(shorter, VideoRule::mindspeed21()).indices, (Indices{0}));
  EXPECT_THROW(choose_frames(shorter, VideoRule::mindspeed20()), MediaError);
  VideoRule rule = VideoRule::llama_factory();
  rule.max_frames = 3;
  EXPECT_EQ(choose_frames(facts(0, 25, std::nullopt), rule).indices, (Indices{0, 1, 2}));
  EXPECT_DOUBLE_EQ(choose_frames(facts(0, 25, std::nullopt), rule).fps, 2);
  EXPECT_THROW(choose_frames(facts(0, 25, std::nullopt), VideoRule::mindspeed20()), MediaError);
}

TEST(Sampling, LimitsOfAFrame) {
  // 128000 · 784 · 0.9 / 400 · 2 = 451584 pixels of 400 frames; few frames reach 768 · 784.
  EXPECT_EQ(pre_resize_of_frames(VideoRule::qwen_utils(), 400).max_pixels, 451584);
  EXPECT_EQ(pre_resize_of_frames(VideoRule::qwen_utils(), 4).max_pixels, 768 * 784);
  // Never below 1.05 times min_pixels, 100352.
  EXPECT_EQ(pre_resize_of_frames(VideoRule::qwen_utils(), 20000).max_pixels, 105369);
  VideoRule lower;
  lower.max_pixels = 200000;
  EXPECT_EQ(pre_resize_of_frames(lower, 4).max_pixels, 200000);
  EXPECT_EQ(pre_resize_of_frames(VideoRule::llama_factory(), 4),
            (PreResize{PreResizeRule::kLlamaFactory, 256, 65536}));
  EXPECT_EQ(second_per_grid(4.0, ImageProcessor{}), 0.5);
}

}  // namespace
}  // namespace danlu::media
