#include "settings/options/media_flags.h"

#include <array>
#include <string>

#include "base/error.h"

namespace danlu::settings {
namespace {

constexpr std::array kMediaFlags{"pre_resize",       "max_pixels",       "min_pixels",
                                 "image_max_pixels", "image_min_pixels", "video_max_pixels",
                                 "video_min_pixels", "image_resolution", "video_resolution",
                                 "video_fps",        "video_maxlen",     "exif",
                                 "add_vision_id",    "media_dir"};

std::optional<int64_t> area(const Options& options, const char* name) {
  if (!options.has_value(name)) return std::nullopt;
  return options.get_int(name);
}

/// The rule that the limits given belong to, where none is named.
std::string rule_of_limits(const Options& options) {
  if (options.has_value("image_resolution") || options.has_value("video_resolution"))
    return "mindspeed-mm-2.0";
  for (const char* name :
       {"image_max_pixels", "image_min_pixels", "video_max_pixels", "video_min_pixels"}) {
    if (options.has_value(name)) return "llamafactory";
  }
  return "none";
}

}  // namespace

data::MediaFlags media_flags_from(const Options& options) {
  data::MediaFlags flags;
  flags.pre_resize =
      options.has_value("pre_resize") ? options.get_string("pre_resize") : rule_of_limits(options);
  flags.min_pixels = area(options, "min_pixels");
  flags.max_pixels = area(options, "max_pixels");
  flags.image_min_pixels = area(options, "image_min_pixels");
  flags.image_max_pixels = area(options, "image_max_pixels");
  flags.video_min_pixels = area(options, "video_min_pixels");
  flags.video_max_pixels = area(options, "video_max_pixels");
  for (const auto& [older, limit] : {std::pair("image_resolution", &flags.image_max_pixels),
                                     std::pair("video_resolution", &flags.video_max_pixels)}) {
    if (!options.has_value(older)) continue;
    if (*limit) {
      throw UsageError(
          tr("{} and {} are one limit under two names: give one of them", options.given_as(older),
             options.given_as(older == std::string("image_resolution") ? "image_max_pixels"
                                                                       : "video_max_pixels")));
    }
    *limit = options.get_int(older);
  }
  if (options.has_value("video_fps")) flags.video_fps = options.get_float("video_fps");
  flags.video_max_frames = area(options, "video_maxlen");
  flags.upright = options.get_string("exif") != "ignore";
  flags.add_vision_id = options.get_bool("add_vision_id");
  flags.media_dir = options.get_string_or("media_dir", "");
  return flags;
}

std::optional<data::MediaSettings> media_settings_from(
    const Options& options, const std::filesystem::path& model_directory) {
  auto settings = data::media_settings_of(model_directory, media_flags_from(options));
  if (settings) return settings;
  for (const char* name : kMediaFlags) {
    if (!options.is_given(name)) continue;
    throw UsageError(
        tr("{}: the model reads text alone", options.given_as(name)),
        tr("pictures need a model such as Qwen2-VL, with preprocessor_config.json in its "
           "directory"));
  }
  return std::nullopt;
}

}  // namespace danlu::settings
