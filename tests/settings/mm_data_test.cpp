// MindSpeed-MM's data.json as options: every key is one, needs nothing, or is refused by name.
#include "settings/options/mm_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "base/file.h"
#include "support/shared_data.h"
#include "support/temporary_directory.h"
#include "support/throws.h"

namespace danlu::settings {
namespace {

using ::testing::HasSubstr;

std::map<std::string, std::string> options_of(const std::filesystem::path& path) {
  std::map<std::string, std::string> options;
  for (const MmDataOption& option : read_mm_data(path)) options[option.name] = option.value;
  return options;
}

/// The golden data.json with one value more, or another.
class ChangedMmData : public test::TemporaryDirectory {
 public:
  std::filesystem::path with(const std::string& pointer, const Json& value) const {
    Json json = read_json_file(test::shared_dir() / "golden/vl/rows/data.json");
    json[Json::json_pointer(pointer)] = value;
    write_json_file(path() / "data.json", json);
    return path() / "data.json";
  }
  std::string refusal(const std::string& pointer, const Json& value) const {
    try {
      read_mm_data(with(pointer, value));
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
};

constexpr const char *kBasic = "/dataset_param/basic_parameters/",
                     *kPreprocess = "/dataset_param/preprocess_parameters/",
                     *kAttr = "/dataset_param/attr/";

TEST(MmData, BecomesOptions) {
  DANLU_REQUIRES_SHARED();
  const auto options = options_of(test::shared_dir() / "golden/vl/rows/data.json");
  const std::map<std::string, std::string> expected = {
      {"tokenizer", "."},
      {"image_resolution", "6400"},
      {"video_resolution", "4096"},
      {"video_fps", "2.0"},
      {"video_maxlen", "64"},
      {"template", "qwen2vl"},
      {"media_dir", "."},
      {"dataset", "./mllm.json"},
      {"cache_dir", "./cache"},
      {"workers", "2"},
      {"map_keys", R"({"system":null,"images":"images","videos":null,"messages":"messages",)"
                   R"("tags":{"role_tag":"role","content_tag":"content","user_tag":"user",)"
                   R"("assistant_tag":"assistant","system_tag":"system"}})"},
      {"shuffle", "true"},
      {"pre_resize", "mindspeed-mm-2.0"}};
  EXPECT_EQ(options, expected);
}

TEST(MmData, HonoursEveryKeyOfTheTable) {
  DANLU_REQUIRES_SHARED();
  const ChangedMmData data;
  const auto value = [&](const std::string& pointer, const Json& given, const char* option) {
    return options_of(data.with(pointer, given))[option];
  };
  EXPECT_EQ(value(std::string(kBasic) + "dataset", "a.json,b.json", "dataset"), "a.json,b.json");
  EXPECT_EQ(value(std::string(kBasic) + "max_samples", 7, "max_total_samples"), "7");
  EXPECT_EQ(value(std::string(kBasic) + "mask_history", true, "loss_scale"), "last_answer");
  EXPECT_EQ(value(std::string(kBasic) + "train_on_prompt", true, "loss_scale"), "all");
  EXPECT_EQ(value(std::string(kBasic) + "overwrite_cache", true, "overwrite_cache"), "true");
  EXPECT_EQ(value(std::string(kBasic) + "val_dataset", "v.json", "val_dataset"), "v.json");
  EXPECT_EQ(value(std::string(kBasic) + "val_rate", 0.1, "val_ratio"), "0.1");
  EXPECT_EQ(value(std::string(kBasic) + "neat_packing", true, "packing"), "true");
  EXPECT_EQ(value(std::string(kPreprocess) + "image_max_pixels", 99999, "pre_resize"),
            "mindspeed-mm-2.1");
  EXPECT_EQ(value(std::string(kAttr) + "formatting", "alpaca", "map_keys"),
            R"({"system":null,"images":"images","videos":null})");
  EXPECT_EQ(value("/dataloader_param/shuffle", false, "shuffle"), "false");
}

// In 2.0 the default of a limit of pictures was meant as a side and read as an area: who runs
// without limits runs 2.1 or later.
TEST(MmData, WithoutLimitsHasThoseOfTheNewerVersions) {
  DANLU_REQUIRES_SHARED();
  const test::TemporaryDirectory directory;
  Json json = read_json_file(test::shared_dir() / "golden/vl/rows/data.json");
  Json& kept = json["dataset_param"]["preprocess_parameters"];
  kept.erase("image_resolution");
  kept.erase("video_resolution");
  write_json_file(directory / "data.json", json);
  EXPECT_EQ(options_of(directory / "data.json")["pre_resize"], "mindspeed-mm-2.1");
  kept["video_resolution"] = 4096;
  write_json_file(directory / "data.json", json);
  EXPECT_EQ(options_of(directory / "data.json")["pre_resize"], "mindspeed-mm-2.0");
}

TEST(MmData, RefusesByName) {
  DANLU_REQUIRES_SHARED();
  const ChangedMmData data;
  const auto refused = [&](const std::string& pointer, const Json& value, const char* what) {
    EXPECT_THAT(data.refusal(pointer, value), HasSubstr(what)) << pointer;
  };
  refused(std::string(kBasic) + "cutoff_len", 1024,
          "cutoff_len: not available: the longest sample");
  refused(std::string(kBasic) + "tool_format", "x", "basic_parameters.tool_format: not available");
  refused(std::string(kBasic) + "max_sample", 5, "basic_parameters.max_sample: unknown key");
  refused(std::string(kPreprocess) + "image_resolution", 512, "an area in pixels, got 512");
  refused(std::string(kPreprocess) + "split_special_tokens", true, "only false");
  refused(std::string(kAttr) + "ranking", true, "attr.ranking: true is not available");
  refused(std::string(kAttr) + "chosen", "c", "preference pairs");
  refused(std::string(kAttr) + "formatting", "other", "must be sharegpt or alpaca");
  refused(std::string(kAttr) + "images", 3, "must be the name of a column");
  refused("/dataset_param/dataset_type", "video", "only \"huggingface\"");
  refused("/dataloader_param/dataloader_mode", "bucket", "only \"sampler\"");
  refused("/dataloader_param/collate_param/ignore_pad_token_for_loss", false, "only true");
  refused("/dataloader_param/collate_param/model_name", "internvl", "only \"qwen2vl\"");
  refused("/data_param", 1, "data_param: unknown key");
  refused("/dataset_param", 1, "dataset_param: must be an object");
}

}  // namespace
}  // namespace danlu::settings
