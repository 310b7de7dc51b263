// Rotary positions of a video's frames where they count seconds.
#include "arch/visual_positions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace danlu::arch {
namespace {

/// The time axis of one token a frame, without text.
std::vector<int64_t> times(int64_t frames, double second_per_grid, double tokens_per_second) {
  VisionConfig vision;
  vision.merge_size = 2;
  vision.tokens_per_second = tokens_per_second;
  VisualSpan span;
  span.grid = {frames, 2, 2};
  span.is_video = true;
  span.second_per_grid = second_per_grid;
  return visual_positions(vision, frames, {span}).axes[0];
}

/// Hugging Face's code multiplies f32 numbers. 144 of 1746 frames at 24 a second are 1746 / 24 /
/// 144 * 2 seconds apart: the 48th is at 97 exactly, where doubles give 96.99….
TEST(VisualPositions, TimesAreRoundedAsHuggingFaceRoundsThem) {
  const double second_per_grid = 2 / (144.0 / 1746 * 24);
  const std::vector<int64_t> got = times(72, second_per_grid, 2);
  EXPECT_EQ(got[48], 97);
  for (int64_t t = 0; t < 72; ++t) {
    const float time = static_cast<float>(t) * static_cast<float>(second_per_grid) * 2.0f;
    EXPECT_EQ(got[static_cast<size_t>(t)], static_cast<int64_t>(time)) << t;
  }
}

TEST(VisualPositions, WithoutARateEachFrameIsAStep) {
  EXPECT_THAT(times(4, 0.5, 0), testing::ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(times(4, 0.5, 4), testing::ElementsAre(0, 2, 4, 6));
}

}  // namespace
}  // namespace danlu::arch
