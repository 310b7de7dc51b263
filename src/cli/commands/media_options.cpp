#include "cli/commands/media_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <string>

#include "base/error.h"
#include "data/media_settings.h"

namespace danlu::cli {
namespace {

constexpr double kLargestArea = 178'956'970;

/// `least`: 0 where the tool's own files say so for "no limit".
OptionSpec area_option(std::string name, std::string help, std::string environment = {},
                       double least = 1) {
  return {.name = std::move(name),
          .type = OptionType::kInt,
          .help = std::move(help),
          .range = at_least(least).up_to(kLargestArea),
          .group = "Pictures and video",
          .environment = std::move(environment)};
}

OptionSpec token_option(std::string name, std::string help, std::string environment) {
  return {.name = std::move(name),
          .type = OptionType::kInt,
          .help = std::move(help),
          .range = at_least(1).up_to(1 << 20),
          .group = "Pictures and video",
          .environment = std::move(environment)};
}

}  // namespace

std::vector<OptionSpec> media_options() {
  const std::string group = "Pictures and video";
  return {
      {.name = "media_dir",
       .help = "where relative paths of pictures are looked for first; then the working directory, "
               "then the folder of the rows",
       .aliases = {"image_folder"},
       .group = group,
       .environment = "ROOT_IMAGE_DIR"},
      {.name = "allow_media_domains",
       .type = OptionType::kList,
       .help =
           "hosts (and those below them) from which pictures named by http(s) URLs are fetched; "
           "none unless given",
       .aliases = {"allowed_media_domains"},
       .group = group},
      area_option("max_pixels", "largest area of a picture (default: preprocessor_config.json's)",
                  "MAX_PIXELS"),
      area_option("min_pixels", "smallest area of a picture (default: preprocessor_config.json's)",
                  "MIN_PIXELS"),
      {.name = "pre_resize",
       .help = "what a tool does to pictures before the model's processor (default: none, or the "
               "rule of the limits below that are given)",
       .choices = data::pre_resize_names(),
       .group = group},
      area_option("image_max_pixels", "LLaMA-Factory, MindSpeed-MM 2.1: larger pictures shrink"),
      area_option("image_min_pixels", "LLaMA-Factory, MindSpeed-MM 2.1: smaller ones grow", {}, 0),
      area_option("video_max_pixels", "the same of the frames of videos"),
      area_option("video_min_pixels", "the same of the frames of videos", {}, 0),
      area_option("image_resolution", "MindSpeed-MM 2.0: larger pictures shrink to this area"),
      area_option("video_resolution", "the same of the frames of videos"),
      area_option("frame_max_pixels",
                  "qwen_vl_utils' VIDEO_MAX_PIXELS: largest area of a frame (default: 602112); the "
                  "smallest one outweighs it",
                  "VIDEO_MAX_PIXELS"),
      area_option("frame_min_pixels",
                  "qwen_vl_utils' VIDEO_MIN_PIXELS: smallest area of a frame (default: 100352)",
                  "VIDEO_MIN_PIXELS"),
      {.name = "video_total_pixels",
       .type = OptionType::kInt,
       .help = "qwen_vl_utils: largest area of all frames of a video (default: 90316800)",
       .range = at_least(1).up_to(double(int64_t{1} << 40)),
       .group = group,
       .environment = "VIDEO_TOTAL_PIXELS"},
      token_option("image_max_token_num", "max_pixels in tokens", "IMAGE_MAX_TOKEN_NUM"),
      token_option("image_min_token_num", "min_pixels in tokens", "IMAGE_MIN_TOKEN_NUM"),
      token_option("video_max_token_num", "frame_max_pixels in tokens", "VIDEO_MAX_TOKEN_NUM"),
      token_option("video_min_token_num", "frame_min_pixels in tokens", "VIDEO_MIN_TOKEN_NUM"),
      {.name = "video_fps",
       .type = OptionType::kFloat,
       .help = "frames taken of a second of video (default: 2)",
       .range = above(0).up_to(1000),
       .group = group,
       .environment = "FPS"},
      {.name = "video_maxlen",
       .type = OptionType::kInt,
       .help = "frames taken of a video, at most",
       .aliases = {"video_max_frames", "fps_max_frames"},
       .range = at_least(2).up_to(1 << 16),
       .group = group,
       .environment = "FPS_MAX_FRAMES"},
      {.name = "video_min_frames",
       .type = OptionType::kInt,
       .help = "qwen_vl_utils: frames taken of a video, at least (default: 4)",
       .aliases = {"fps_min_frames"},
       .range = at_least(2).up_to(1 << 16),
       .group = group,
       .environment = "FPS_MIN_FRAMES"},
      {.name = "norm_bbox",
       .help = "numbers of the boxes that rows have in `objects`: of 1000, or none, of pixels of "
               "the picture as the model sees it (default: none with Qwen2.5-VL, else norm1000)",
       .choices = {"norm1000", "none"},
       .group = group},
      {.name = "bbox_format",
       .help = "how these boxes are written: legacy, with <|box_start|>, or new, [x1, y1, x2, y2] "
               "(default: legacy)",
       .choices = {"legacy", "new"},
       .group = group,
       .environment = "QWENVL_BBOX_FORMAT"},
      {.name = "exif",
       .default_text = "transpose",
       .help = "pictures that were taken sideways: turned, or left as most training tools do",
       .choices = {"transpose", "ignore"},
       .group = group},
      {.name = "add_vision_id",
       .type = OptionType::kBool,
       .default_text = "false",
       .help = "\"Picture 1: \" before each picture, \"Video 1: \" before each video",
       .group = group},
      {.name = "model_kwargs",
       .type = OptionType::kJson,
       .help = "ms-swift's: its variables of pictures and videos by their names in small letters, "
               "{\"max_pixels\": 1003520}; flags outweigh them",
       .group = group},
  };
}

Options with_model_kwargs(const OptionTable& table, const Options& given) {
  if (!table.find_spec("model_kwargs") || !given.has_value("model_kwargs")) return given;
  const std::string flag = given.given_as("model_kwargs");
  const Json told = given.get_json("model_kwargs");
  if (!told.is_object())
    throw UsageError(tr("[{}] {}: expected a JSON object", table.command(), flag));
  Options options = given;
  std::vector<std::string> known;
  for (const OptionSpec& spec : media_options()) {
    if (spec.environment.empty()) continue;
    std::string key = spec.environment;
    for (char& c : key) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    known.push_back(key);
    if (!told.contains(key) || given.is_given(spec.name)) continue;
    const Json& value = told.at(key);
    options =
        options.with(spec.name, value.is_string() ? value.get<std::string>() : value.dump(), flag);
  }
  for (const auto& [key, value] : told.items()) {
    if (std::count(known.begin(), known.end(), key) > 0) continue;
    throw UsageError(
        tr("[{}] {}: '{}' is no variable of pictures or videos", table.command(), flag, key),
        tr("there is: {}", fmt::format("{}", fmt::join(known, ", "))));
  }
  return options;
}

}  // namespace danlu::cli
