#include "cli/commands/media_options.h"

#include <string>

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
      area_option("video_max_pixels", "the same of the frames of videos", "VIDEO_MAX_PIXELS"),
      area_option("video_min_pixels", "the same of the frames of videos", {}, 0),
      area_option("image_resolution", "MindSpeed-MM 2.0: larger pictures shrink to this area"),
      area_option("video_resolution", "the same of the frames of videos"),
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
  };
}

}  // namespace danlu::cli
