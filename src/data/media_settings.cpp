#include "data/media_settings.h"

#include <algorithm>
#include <set>
#include <system_error>

#include "base/error.h"

namespace danlu::data {
namespace {

/// Another one where the same rows are read otherwise: part of what caches are named by.
constexpr int kRowsVersion = 2;

constexpr const char *kNone = "none", *kQwenUtils = "qwen_vl_utils",
                     *kLlamaFactory = "llamafactory", *kMindSpeed20 = "mindspeed-mm-2.0",
                     *kMindSpeed21 = "mindspeed-mm-2.1";

void require_order(const char* flag, int64_t least, int64_t most) {
  if (least <= most) return;
  throw UsageError(tr("[{}] the least area of a picture, {} pixels, is above the largest, {}", flag,
                      least, most));
}

media::VideoRule tools_video_rule(const std::string& rule) {
  if (rule == kLlamaFactory) return media::VideoRule::llama_factory();
  if (rule == kMindSpeed20) return media::VideoRule::mindspeed20();
  if (rule == kMindSpeed21) return media::VideoRule::mindspeed21();
  return media::VideoRule::qwen_utils();
}

/// `tokens` as an area, else `pixels`.
std::optional<int64_t> area_of(std::optional<int64_t> tokens, std::optional<int64_t> pixels,
                               const media::ImageProcessor& processor) {
  return tokens ? *tokens * processor.cell() * processor.cell() : pixels;
}

/// The limits of qwen_vl_utils' environment.
void take_utils_limits(const MediaFlags& flags, const media::ImageProcessor& processor,
                       media::VideoRule& rule) {
  rule.min_pixels =
      area_of(flags.frame_min_tokens, flags.frame_min_pixels, processor).value_or(rule.min_pixels);
  rule.frame_pixels = area_of(flags.frame_max_tokens, flags.frame_max_pixels, processor)
                          .value_or(rule.frame_pixels);
  // It is the whole limit where no other is given.
  rule.max_pixels = std::max(rule.max_pixels, rule.frame_pixels);
  rule.max_pixels =
      std::max(rule.max_pixels, static_cast<int64_t>(static_cast<double>(rule.min_pixels) * 1.05));
  if (flags.video_total_pixels) rule.total_pixels = static_cast<double>(*flags.video_total_pixels);
}

bool has_utils_limits(const MediaFlags& flags) {
  return flags.frame_min_pixels || flags.frame_max_pixels || flags.frame_min_tokens ||
         flags.frame_max_tokens || flags.video_total_pixels;
}

media::VideoRule video_by_rule(const MediaFlags& flags, const media::ImageProcessor& processor) {
  media::VideoRule rule = tools_video_rule(flags.pre_resize);
  const bool of_utils = rule.tool == media::PreResizeRule::kQwenUtils;
  if (of_utils) take_utils_limits(flags, processor, rule);
  const bool has_least = flags.video_min_pixels.has_value();
  rule.min_pixels = flags.video_min_pixels.value_or(rule.min_pixels);
  rule.max_pixels = flags.video_max_pixels.value_or(rule.max_pixels);
  // qwen_vl_utils' own least area is large, and who asks for less has not asked for it.
  if (of_utils && !has_least) rule.min_pixels = std::min(rule.min_pixels, rule.max_pixels);
  require_order("video_max_pixels", rule.min_pixels, rule.max_pixels);
  return rule;
}

media::PreResize pictures_by_rule(const std::string& rule, std::optional<int64_t> least,
                                  std::optional<int64_t> most) {
  // Nobody relies on 2.0's own, 512: it is meant as a side and read as an area.
  constexpr int64_t kArea20 = 512 * 512;
  if (rule == kMindSpeed20) return media::PreResize::mindspeed20(most.value_or(kArea20));
  media::PreResize resize = media::PreResize::llama_factory();
  if (rule == kMindSpeed21) resize.rule = media::PreResizeRule::kMindSpeed21;
  resize.min_pixels = least.value_or(resize.min_pixels);
  resize.max_pixels = most.value_or(resize.max_pixels);
  return resize;
}

/// The flag's word for what a tool does.
const char* name_of_rule(media::PreResizeRule rule) {
  switch (rule) {
    case media::PreResizeRule::kNone:
      return kNone;
    case media::PreResizeRule::kQwenUtils:
      return kQwenUtils;
    case media::PreResizeRule::kLlamaFactory:
      return kLlamaFactory;
    case media::PreResizeRule::kMindSpeed20:
      return kMindSpeed20;
    case media::PreResizeRule::kMindSpeed21:
      return kMindSpeed21;
  }
  return kNone;
}

/// Errors: UsageError for a limit that the rule does not have.
void require_limits_of_rule(const MediaFlags& flags) {
  const bool of_qwen = flags.pre_resize == kNone || flags.pre_resize == kQwenUtils;
  if (of_qwen && (flags.image_min_pixels || flags.image_max_pixels)) {
    throw UsageError(
        tr("[pre_resize] {} has no image_max_pixels or image_min_pixels", flags.pre_resize),
        tr("--max_pixels and --min_pixels are the limits of pictures there"));
  }
  if (flags.pre_resize == kMindSpeed20 && (flags.image_min_pixels || flags.video_min_pixels)) {
    throw UsageError(
        tr("[pre_resize] {} has no image_min_pixels or video_min_pixels", flags.pre_resize),
        tr("--pre_resize mindspeed-mm-2.1 has them; --image_resolution and --video_resolution "
           "choose 2.0"));
  }
}

/// config.json's model_type; empty where it says none.
std::string model_type_in(const std::filesystem::path& model_directory) {
  std::error_code ignored;
  const auto path = model_directory / "config.json";
  if (model_directory.empty() || !std::filesystem::is_regular_file(path, ignored)) return "";
  const Json config = read_json_file(path);
  if (!config.is_object()) return "";
  return json_get<std::string>(config, "model_type").value_or("");
}

/// Whether the model is one of those whose pictures are read.
bool has_vision_tower(const std::filesystem::path& model_directory) {
  const std::string type = model_type_in(model_directory);
  return type == "qwen2_vl" || type == "qwen2_5_vl";
}

}  // namespace

Json MediaSettings::grid_json() const {
  return {{"patch_size", processor.patch_size},
          {"temporal_patch_size", processor.temporal_patch_size},
          {"merge_size", processor.merge_size},
          {"do_resize", processor.do_resize},
          {"min_pixels", processor.min_pixels},
          {"max_pixels", processor.max_pixels},
          {"pre_resize", name_of_rule(image_resize.rule)},
          {"image_min_pixels", image_resize.min_pixels},
          {"image_max_pixels", image_resize.max_pixels},
          {"frames_pre_resize", name_of_rule(frame_resize.rule)},
          {"frames_min_pixels", frame_resize.min_pixels},
          {"frames_max_pixels", frame_resize.max_pixels},
          {"frames_as_videos", lists_as_videos},
          {"exif", upright ? "transpose" : "ignore"},
          {"video_pre_resize", name_of_rule(video.tool)},
          {"video_fps", video.fps},
          {"video_min_frames", video.min_frames},
          {"video_maxlen", video.max_frames},
          {"video_min_pixels", video.min_pixels},
          {"video_max_pixels", video.max_pixels},
          {"video_total_pixels", video.total_pixels},
          {"video_frame_pixels", video.frame_pixels}};
}

Json MediaSettings::to_json() const {
  std::error_code ignored;
  Json json = grid_json();
  // mean and std change pixels, not tokens; a path may mean another file in another directory.
  json.update(
      {{"add_vision_id", add_vision_id},
       {"boxes", {boxes.of_seen_pixels, boxes.is_list}},
       {"rows", kRowsVersion},
       {"fetches", fetch != nullptr},
       {"domains", std::set<std::string>(domains.begin(), domains.end())},
       {"media_dir", media_dir.empty() ? "" : std::filesystem::absolute(media_dir).string()},
       {"working_directory", std::filesystem::current_path(ignored).string()}});
  return json;
}

Json MediaSettings::answer_json() const {
  Json json = grid_json();
  json.update({{"add_vision_id", add_vision_id},
               {"do_rescale", processor.do_rescale},
               {"rescale_factor", processor.rescale_factor},
               {"do_normalize", processor.do_normalize},
               {"image_mean", processor.mean},
               {"image_std", processor.std},
               {"resample", static_cast<int>(processor.filter)}});
  return json;
}

bool is_on_the_web(const std::string& name) {
  return name.starts_with("http://") || name.starts_with("https://");
}

std::vector<std::filesystem::path> media_places(const std::string& name,
                                                const MediaSettings& settings,
                                                const std::filesystem::path& row_folder) {
  const std::filesystem::path path = name;
  if (path.is_absolute()) return {path};
  std::vector<std::filesystem::path> folders;
  if (!settings.media_dir.empty()) folders.push_back(settings.media_dir);
  folders.emplace_back();
  folders.push_back(row_folder);
  std::vector<std::filesystem::path> places;
  for (const std::filesystem::path& folder : folders)
    places.push_back(std::filesystem::absolute(folder / path).lexically_normal());
  return places;
}

std::filesystem::path locate_media(const std::string& name, const MediaSettings& settings,
                                   const std::filesystem::path& row_folder) {
  const std::vector<std::filesystem::path> places = media_places(name, settings, row_folder);
  std::error_code ignored;
  for (const std::filesystem::path& place : places) {
    if (std::filesystem::exists(place, ignored)) return place;
  }
  return places.front();
}

const std::vector<std::string>& pre_resize_names() {
  static const std::vector<std::string> kNames{kNone, kQwenUtils, kLlamaFactory, kMindSpeed20,
                                               kMindSpeed21};
  return kNames;
}

bool reads_media(const std::filesystem::path& model_directory) {
  for (const char* name : {"preprocessor_config.json", "processor_config.json"}) {
    std::error_code ignored;
    const auto path = model_directory / name;
    if (model_directory.empty() || !std::filesystem::is_regular_file(path, ignored)) continue;
    const Json json = read_json_file(path);
    const Json& config =
        json.is_object() && json.contains("image_processor") ? json["image_processor"] : json;
    if (!config.is_object()) continue;
    const std::string type = json_get<std::string>(config, "image_processor_type").value_or("");
    if (type.find("Qwen2VL") != type.npos || type.find("Qwen2_5_VL") != type.npos) return true;
    // Older files do not say it; nobody else merges patches.
    if (type.empty() && config.contains("merge_size")) return true;
  }
  return false;
}

std::string why_no_media(const std::filesystem::path& model_directory) {
  if (!has_vision_tower(model_directory)) return tr("the model reads text alone");
  return tr("{} has no preprocessor_config.json, which says how pictures are read",
            model_directory.string());
}

std::optional<MediaSettings> media_settings_of(const std::filesystem::path& model_directory,
                                               const MediaFlags& flags) {
  if (!reads_media(model_directory) && !has_vision_tower(model_directory)) return std::nullopt;
  MediaSettings settings;
  settings.processor = media::read_image_processor(model_directory);
  require_limits_of_rule(flags);
  settings.video = video_by_rule(flags, settings.processor);
  const auto least = area_of(flags.image_min_tokens, flags.min_pixels, settings.processor),
             most = area_of(flags.image_max_tokens, flags.max_pixels, settings.processor);
  if (flags.pre_resize == kQwenUtils) {
    settings.image_resize = media::PreResize::qwen_utils();
    if (least) settings.image_resize.min_pixels = *least;
    if (most) settings.image_resize.max_pixels = *most;
    require_order("max_pixels", settings.image_resize.min_pixels, settings.image_resize.max_pixels);
    settings.frame_resize = settings.image_resize;
    settings.lists_as_videos = true;
  } else {
    if (least) settings.processor.min_pixels = *least;
    if (most) settings.processor.max_pixels = *most;
    require_order("max_pixels", settings.processor.min_pixels, settings.processor.max_pixels);
    if (flags.pre_resize == kNone) {
      // Whoever says them has seen them hold for lists too.
      settings.lists_as_videos = has_utils_limits(flags);
    } else {
      settings.image_resize =
          pictures_by_rule(flags.pre_resize, flags.image_min_pixels, flags.image_max_pixels);
      settings.frame_resize = media::pre_resize_of_frames(settings.video, 2);
      require_order("image_max_pixels", settings.image_resize.min_pixels,
                    settings.image_resize.max_pixels);
    }
  }
  settings.upright = flags.upright;
  settings.video.upright = flags.upright && settings.video.tool == media::PreResizeRule::kQwenUtils;
  settings.add_vision_id = flags.add_vision_id;
  settings.video.fps = flags.video_fps.value_or(settings.video.fps);
  settings.video.max_frames = flags.video_max_frames.value_or(settings.video.max_frames);
  settings.video.min_frames = flags.video_min_frames.value_or(settings.video.min_frames);
  settings.boxes = {.of_seen_pixels = flags.boxes_of_seen_pixels.value_or(
                        model_type_in(model_directory) == "qwen2_5_vl"),
                    .is_list = flags.boxes_are_lists};
  if (settings.video.min_frames > settings.video.max_frames)
    settings.video.min_frames = settings.video.max_frames;
  settings.media_dir = flags.media_dir;
  return settings;
}

}  // namespace danlu::data
