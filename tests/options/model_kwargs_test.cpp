// ms-swift's --model_kwargs: its variables of pictures and videos in one flag.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "cli/commands/commands.h"
#include "cli/commands/media_options.h"

namespace danlu::cli {
namespace {

Options of_line(const OptionTable& table, const std::vector<std::string>& more) {
  std::vector<std::string> words = {"--model", "m"};
  words.insert(words.end(), more.begin(), more.end());
  return with_model_kwargs(table, table.parse(words));
}

TEST(ModelKwargs, AreVariablesBelowFlags) {
  for (const OptionTable& table : {sft_options(), infer_options()}) {
    const Options options = of_line(table, {"--model_kwargs",
                                            "{\"max_pixels\": 1003520, \"fps\": 1.5, "
                                            "\"fps_max_frames\": \"12\"}",
                                            "--video_fps", "3"});
    EXPECT_EQ(options.get_int("max_pixels"), 1003520) << table.command();
    EXPECT_EQ(options.given_as("max_pixels"), "--model_kwargs");
    EXPECT_EQ(options.get_int("video_maxlen"), 12);
    EXPECT_EQ(options.get_float("video_fps"), 3);
    EXPECT_FALSE(of_line(table, {}).has_value("max_pixels"));
  }
}

TEST(ModelKwargs, OtherKeysAreRefused) {
  const auto refusal = [](const std::string& json) -> std::string {
    try {
      of_line(sft_options(), {"--model_kwargs", json});
    } catch (const UsageError& error) {
      return error.what();
    }
    return "(accepted)";
  };
  EXPECT_THAT(refusal("{\"attn\": 1}"), testing::HasSubstr("'attn' is no variable of pictures"));
  EXPECT_THAT(refusal("[1]"), testing::HasSubstr("--model_kwargs: expected a JSON object"));
  EXPECT_THAT(refusal("{\"max_pixels\": -3}"), testing::HasSubstr("--model_kwargs"));
}

}  // namespace
}  // namespace danlu::cli
