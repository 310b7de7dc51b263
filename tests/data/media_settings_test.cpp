// What flags about pictures and videos mean by the rule of each tool.
#include "data/media_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "support/temporary_directory.h"
#include "support/throws.h"

namespace danlu::data {
namespace {

using ::testing::HasSubstr;

class LimitsOfMedia : public ::testing::Test {
 protected:
  void SetUp() override {
    write_json_file(directory_ / "preprocessor_config.json",
                    {{"image_processor_type", "Qwen2VLImageProcessor"}});
  }
  MediaSettings settings(const MediaFlags& flags) const {
    return media_settings_of(directory_.path(), flags).value();
  }
  std::string refusal(const MediaFlags& flags) const {
    return error_text<UsageError>([&] { settings(flags); });
  }

  const test::TemporaryDirectory directory_;
};

/// MindSpeed-MM 2.0 (data_utils: image_resolution, video_resolution) makes nothing larger.
TEST_F(LimitsOfMedia, MindSpeedMm20HasNoLeastAreas) {
  MediaFlags flags;
  flags.pre_resize = "mindspeed-mm-2.0";
  flags.image_max_pixels = 10000;
  EXPECT_EQ(settings(flags).image_resize, media::PreResize::mindspeed20(10000));
  flags.image_min_pixels = 5000;
  const std::string text = "mindspeed-mm-2.0 has no image_min_pixels or video_min_pixels";
  EXPECT_THAT(refusal(flags), HasSubstr(text));
  flags.image_min_pixels.reset();
  flags.video_min_pixels = 5000;
  EXPECT_THAT(refusal(flags), HasSubstr(text));
  flags.pre_resize = "mindspeed-mm-2.1";
  EXPECT_EQ(settings(flags).video.min_pixels, 5000);
}

/// qwen_vl_utils (fetch_video): min(max_pixels of the video, the limit by its number of frames).
TEST_F(LimitsOfMedia, QwensRulesLimitTheFramesOfVideoFiles) {
  for (const char* rule : {"none", "qwen_vl_utils"}) {
    MediaFlags flags;
    flags.pre_resize = rule;
    EXPECT_EQ(settings(flags).video.max_pixels, 768 * 784);
    flags.video_max_pixels = 200'000;
    const media::VideoRule video = settings(flags).video;
    EXPECT_EQ(media::pre_resize_of_frames(video, 2).max_pixels, 200'000);
    EXPECT_EQ(media::pre_resize_of_frames(video, 2).min_pixels, 128 * 784);
    flags.video_max_pixels = 50'000;  // below the least area of its own
    EXPECT_EQ(media::pre_resize_of_frames(settings(flags).video, 2).max_pixels, 50'000);
    flags.video_min_pixels = 60'000;
    EXPECT_THAT(refusal(flags), HasSubstr("60000 pixels, is above the largest, 50000"));
    flags.video_min_pixels = 40'000;
    EXPECT_EQ(settings(flags).video.min_pixels, 40'000);
    flags.image_max_pixels = 50'000;
    EXPECT_THAT(refusal(flags), HasSubstr("has no image_max_pixels or image_min_pixels"));
  }
}

/// qwen_vl_utils (fetch_video): max(min(VIDEO_MAX_PIXELS, total / frames * 2), int(least * 1.05)).
TEST_F(LimitsOfMedia, TheEnvironmentsLargestFrameGivesWayToTheLeastOne) {
  const auto limits = [&](const MediaFlags& flags, int64_t frames) {
    const media::PreResize resize = media::pre_resize_of_frames(settings(flags).video, frames);
    return std::pair(resize.min_pixels, resize.max_pixels);
  };
  MediaFlags flags;
  flags.frame_max_pixels = 50'176;
  EXPECT_EQ(limits(flags, 4), std::pair(100'352L, 105'369L));
  flags.frame_min_pixels = 784;
  EXPECT_EQ(limits(flags, 4), std::pair(784L, 50'176L));
  flags.frame_max_tokens = 64;  // tokens outweigh pixels
  flags.frame_max_pixels = 200'000;
  EXPECT_EQ(limits(flags, 4), std::pair(784L, 50'176L));
  // 10 frames of 100,000 pixels together: 20,000 for each pair's frame.
  flags.video_total_pixels = 100'000;
  EXPECT_EQ(limits(flags, 10), std::pair(784L, 20'000L));
  MediaFlags large;
  large.frame_max_pixels = 1'000'000;
  EXPECT_EQ(limits(large, 2), std::pair(100'352L, 1'000'000L));
  // By the rules of other tools it is none of theirs.
  large.pre_resize = "llamafactory";
  EXPECT_EQ(limits(large, 2), std::pair(256L, 65'536L));
}

TEST_F(LimitsOfMedia, TokensAreAreasOfTheProcessorsCells) {
  MediaFlags flags;
  flags.image_max_tokens = 64;
  flags.image_min_tokens = 4;
  EXPECT_EQ(settings(flags).processor.max_pixels, 64 * 784);
  EXPECT_EQ(settings(flags).processor.min_pixels, 4 * 784);
  flags.pre_resize = "qwen_vl_utils";
  EXPECT_EQ(settings(flags).image_resize.max_pixels, 64 * 784);
  flags.video_min_frames = 2;
  EXPECT_EQ(settings(flags).video.min_frames, 2);
}

/// MindSpeed-MM 2.1 … (data_utils/func_utils/model_args.py): 768², 32², 256², 16², 128 frames.
TEST_F(LimitsOfMedia, MindSpeedMm21HasLeastAreasOfItsOwn) {
  MediaFlags flags;
  flags.pre_resize = "mindspeed-mm-2.1";
  EXPECT_EQ(settings(flags).image_resize, media::PreResize::mindspeed21(1024, 768 * 768));
  EXPECT_EQ(settings(flags).frame_resize, media::PreResize::mindspeed21(256, 256 * 256));
  EXPECT_EQ(settings(flags).video.max_frames, 128);
  // One limit says nothing of the others.
  flags.video_max_pixels = 4096;
  EXPECT_EQ(settings(flags).image_resize, media::PreResize::mindspeed21(1024, 768 * 768));
  EXPECT_EQ(settings(flags).frame_resize, media::PreResize::mindspeed21(256, 4096));
}

/// ms-swift: norm_bbox is 'norm1000' in Template, 'none' in Qwen2_5VLTemplate.
TEST_F(LimitsOfMedia, BoxesAreThoseOfTheModelsFamily) {
  write_json_file(directory_ / "config.json", {{"model_type", "qwen2_vl"}});
  EXPECT_FALSE(settings({}).boxes.of_seen_pixels);
  write_json_file(directory_ / "config.json", {{"model_type", "qwen2_5_vl"}});
  EXPECT_TRUE(settings({}).boxes.of_seen_pixels);
  MediaFlags flags;
  flags.boxes_of_seen_pixels = false;
  flags.boxes_are_lists = true;
  EXPECT_FALSE(settings(flags).boxes.of_seen_pixels);
  EXPECT_TRUE(settings(flags).boxes.is_list);
}

TEST_F(LimitsOfMedia, AnswersDependOnWhatIsDoneToPixels) {
  const MediaSettings settings = this->settings({});
  MediaSettings other = settings;
  other.processor.mean[0] = 0.1f;
  EXPECT_NE(settings.answer_json(), other.answer_json());
  EXPECT_EQ(settings.to_json(), other.to_json());
  other = settings;
  other.media_dir = "elsewhere";
  EXPECT_EQ(settings.answer_json(), other.answer_json());
  EXPECT_NE(settings.to_json(), other.to_json());
}

}  // namespace
}  // namespace danlu::data
