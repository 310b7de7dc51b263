#include "settings/options/media_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <string>
#include <utility>

#include "base/environment.h"
#include "base/error.h"
#include "base/log.h"
#include "base/lower_case.h"
#include "base/option_profiles.h"
#include "settings/web_pictures.h"
#include "text/template_choice.h"

namespace danlu::settings {
namespace {

constexpr std::array kMediaFlags{"pre_resize",          "max_pixels",
                                 "min_pixels",          "image_max_pixels",
                                 "image_min_pixels",    "video_max_pixels",
                                 "video_min_pixels",    "image_resolution",
                                 "video_resolution",    "frame_max_pixels",
                                 "frame_min_pixels",    "video_total_pixels",
                                 "image_max_token_num", "image_min_token_num",
                                 "video_max_token_num", "video_min_token_num",
                                 "video_fps",           "video_maxlen",
                                 "video_min_frames",    "norm_bbox",
                                 "bbox_format",         "exif",
                                 "add_vision_id",       "media_dir",
                                 "allow_media_domains"};

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
    if (options.is_given(name)) return "llamafactory";
  }
  return "none";
}

/// A limit in tokens where it counts: what is typed outweighs what the environment says, there
/// tokens outweigh pixels, as in qwen_vl_utils. Errors: UsageError (both are typed).
std::optional<int64_t> tokens(const Options& options, const char* name, const char* pixels) {
  if (!options.has_value(name)) return std::nullopt;
  if (options.is_given(pixels) && options.is_given(name)) {
    throw UsageError(tr("{} and {} are one limit under two names: give one of them",
                        options.given_as(name), options.given_as(pixels)));
  }
  if (options.is_given(pixels)) return std::nullopt;
  return options.get_int(name);
}

/// ms-swift scales by its flag before qwen_vl_utils rounds; the variable MAX_PIXELS is the limit of
/// that rounding there and here.
void tell_of_rescaling() {
  static std::atomic<bool> is_told{false};
  if (is_told.exchange(true)) return;
  log::notice(
      "--max_pixels is the limit within which pictures are rounded to whole tokens, as "
      "MAX_PIXELS is in ms-swift; its own --max_pixels scales before that, and may give a "
      "row or column of tokens more");
}

/// Variables that change how ms-swift reads pictures and nothing here, unless they say what holds.
void report_idle_variables() {
  constexpr std::pair<const char*, const char*> kUsual[] = {{"IMAGE_FACTOR", "28"},
                                                            {"FRAME_FACTOR", "2"},
                                                            {"MAX_RATIO", "200"},
                                                            {"SPATIAL_MERGE_SIZE", "2"}};
  for (const auto& [name, usual] : kUsual) {
    const std::string value = environment_variable(name);
    if (!value.empty() && value != usual)
      log::warning("{}={} has no effect: it is {} here", name, value, usual);
  }
}

/// Says once which limits of qwen_vl_utils are set and change nothing, and which ones give way.
void report_utils_limits(const data::MediaFlags& flags, const media::VideoRule& video) {
  static std::atomic<bool> is_told{false};
  if (is_told.exchange(true)) return;
  report_idle_variables();
  if (video.tool != media::PreResizeRule::kQwenUtils) {
    for (const auto& [name, value] : {std::pair("VIDEO_MAX_PIXELS", &flags.frame_max_pixels),
                                      std::pair("VIDEO_MIN_PIXELS", &flags.frame_min_pixels),
                                      std::pair("VIDEO_TOTAL_PIXELS", &flags.video_total_pixels),
                                      std::pair("VIDEO_MAX_TOKEN_NUM", &flags.frame_max_tokens),
                                      std::pair("VIDEO_MIN_TOKEN_NUM", &flags.frame_min_tokens),
                                      std::pair("FPS_MIN_FRAMES", &flags.video_min_frames)}) {
      if (!*value) continue;
      log::warning(
          "{} has no effect: it is a limit of qwen_vl_utils, and --pre_resize {} reads "
          "videos otherwise",
          name, flags.pre_resize);
    }
    return;
  }
  const media::PreResize frames = media::pre_resize_of_frames(video, 2);
  if (video.frame_pixels < frames.max_pixels) {
    log::notice(
        "frames of videos have {} to {} pixels, not {}: as in qwen_vl_utils the least area "
        "outweighs the largest one; VIDEO_MIN_PIXELS lowers it",
        frames.min_pixels, frames.max_pixels, video.frame_pixels);
  }
}

}  // namespace

data::MediaFlags media_flags_from(const Options& options) {
  data::MediaFlags flags;
  // A profile's rule gives way to that of limits that are typed.
  flags.pre_resize = rule_of_limits(options);
  if (options.is_given("pre_resize") ||
      (flags.pre_resize == "none" && options.has_value("pre_resize")))
    flags.pre_resize = options.get_string("pre_resize");
  if (is_of_swift(options.profile().name) && options.is_given("max_pixels")) tell_of_rescaling();
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
  flags.frame_min_pixels = area(options, "frame_min_pixels");
  flags.frame_max_pixels = area(options, "frame_max_pixels");
  flags.video_total_pixels = area(options, "video_total_pixels");
  flags.image_min_tokens = tokens(options, "image_min_token_num", "min_pixels");
  flags.image_max_tokens = tokens(options, "image_max_token_num", "max_pixels");
  flags.frame_min_tokens = tokens(options, "video_min_token_num", "frame_min_pixels");
  flags.frame_max_tokens = tokens(options, "video_max_token_num", "frame_max_pixels");
  flags.video_min_frames = area(options, "video_min_frames");
  if (options.has_value("norm_bbox"))
    flags.boxes_of_seen_pixels = options.get_string("norm_bbox") == "none";
  flags.boxes_are_lists = options.get_string_or("bbox_format", "legacy") == "new";
  if (options.has_value("video_fps")) flags.video_fps = options.get_float("video_fps");
  flags.video_max_frames = area(options, "video_maxlen");
  flags.upright = options.get_string("exif") != "ignore";
  flags.add_vision_id = options.get_bool("add_vision_id");
  flags.media_dir = options.get_string_or("media_dir", "");
  flags.allowed_domains = options.get_list("allow_media_domains");
  return flags;
}

std::vector<const char*> media_flag_names() { return {kMediaFlags.begin(), kMediaFlags.end()}; }

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
  if (settings) report_utils_limits(flags, settings->video);
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
