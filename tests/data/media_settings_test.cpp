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
