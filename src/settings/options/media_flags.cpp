#include "settings/options/media_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string>

#include "base/error.h"
#include "base/log.h"
#include "base/lower_case.h"
#include "settings/web_pictures.h"
#include "text/template_choice.h"

namespace danlu::settings {
namespace {

constexpr std::array kMediaFlags{"pre_resize",       "max_pixels",       "min_pixels",
                                 "image_max_pixels", "image_min_pixels", "video_max_pixels",
                                 "video_min_pixels", "image_resolution", "video_resolution",
                                 "video_fps",        "video_maxlen",     "exif",
                                 "add_vision_id",    "media_dir",        "allow_media_domains"};

bool is_place(std::string_view name) {
  return name == "media_dir" || name == "allow_media_domains";
}

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
    // An environment's VIDEO_MAX_PIXELS is a limit of qwen_vl_utils.
    if (options.is_given(name)) return "llamafactory";
  }
  return "none";
}

}  // namespace

data::MediaFlags media_flags_from(const Options& options) {
  data::MediaFlags flags;
  // A profile's rule gives way to that of limits that are typed.
  flags.pre_resize = rule_of_limits(options);
  if (options.is_given("pre_resize") ||
      (flags.pre_resize == "none" && options.has_value("pre_resize")))
    flags.pre_resize = options.get_string("pre_resize");
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
  flags.allowed_domains = options.get_list("allow_media_domains");
  return flags;
}

std::vector<std::string> given_media_flags(const Options& options) {
  std::vector<std::string> given;
  for (const char* name : kMediaFlags) {
    if (options.is_given(name)) given.push_back(options.given_as(name));
  }
  return given;
}

std::filesystem::path processor_directory(const TrainConfig& config) {
  const std::filesystem::path& model = config.model.path;
  if (config.model.tokenizer.empty() || (!model.empty() && data::reads_media(model))) return model;
  return text::directory_of_model(config.model.tokenizer);
}

std::optional<data::MediaSettings> fetching_media_settings(
    const std::filesystem::path& model_directory, const data::MediaFlags& flags) {
  auto settings = data::media_settings_of(model_directory, flags);
  if (settings && !flags.allowed_domains.empty()) {
    settings->fetch = [domains = flags.allowed_domains](const std::string& url) {
      return fetch_web_picture(url, domains);
    };
    for (const std::string& domain : flags.allowed_domains)
      settings->domains.push_back(lower_case(domain));
  }
  return settings;
}

Options with_recorded_media(const Options& options, const Json& run_args,
                            const std::filesystem::path& record) {
  Options result = options;
  std::vector<std::string> taken;
  if (!run_args.is_object()) return result;
  // One limit of the line's own changes what the others mean.
  const bool says_limits =
      std::any_of(kMediaFlags.begin(), kMediaFlags.end(),
                  [&](const char* name) { return options.is_given(name) && !is_place(name); });
  if (says_limits) return result;
  for (const std::string name : kMediaFlags) {
    const auto value = run_args.find(name);
    if (is_place(name) || options.is_set(name) || value == run_args.end() || value->is_null())
      continue;
    const std::string text = value->is_string() ? value->get<std::string>() : value->dump();
    if (text.empty() || text == "transpose" || text == "false") continue;  // the defaults
    result = result.with(name, text, (record / "args.json").string());
    taken.push_back(fmt::format("--{} {}", name, text));
  }
  if (!taken.empty())
    log::notice("pictures as in the run ({}): {}", record.string(), fmt::join(taken, " "));
  return result;
}

std::optional<data::MediaSettings> media_settings_from(
    const Options& options, const std::filesystem::path& model_directory) {
  auto settings = fetching_media_settings(model_directory, media_flags_from(options));
  const std::vector<std::string> given = given_media_flags(options);
  if (!settings && !given.empty())
    log::notice("{}: without effect, the model reads text alone", fmt::join(given, ", "));
  return settings;
}

}  // namespace danlu::settings
