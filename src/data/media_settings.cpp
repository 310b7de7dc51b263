#include "data/media_settings.h"

#include <system_error>

#include "base/error.h"

namespace danlu::data {
namespace {

constexpr const char *kNone = "none", *kQwenUtils = "qwen_vl_utils",
                     *kLlamaFactory = "llamafactory", *kMindSpeed20 = "mindspeed-mm-2.0",
                     *kMindSpeed21 = "mindspeed-mm-2.1";

void require_order(const char* flag, int64_t least, int64_t most) {
  if (least <= most) return;
  throw UsageError(tr("[{}] the least area of a picture, {} pixels, is above the largest, {}", flag,
                      least, most));
}

media::VideoRule video_by_rule(const std::string& rule) {
  if (rule == kLlamaFactory) return media::VideoRule::llama_factory();
  if (rule == kMindSpeed20) return media::VideoRule::mindspeed20();
  if (rule == kMindSpeed21) return media::VideoRule::mindspeed21();
  return media::VideoRule::qwen_utils();
}

media::PreResize pictures_by_rule(const std::string& rule, std::optional<int64_t> least,
                                  std::optional<int64_t> most) {
  constexpr int64_t kMindSpeedsArea = 512 * 512;
  if (rule == kMindSpeed20) return media::PreResize::mindspeed20(most.value_or(kMindSpeedsArea));
  if (rule == kMindSpeed21)
    return media::PreResize::mindspeed21(least.value_or(0), most.value_or(kMindSpeedsArea));
  media::PreResize resize = media::PreResize::llama_factory();
  resize.min_pixels = least.value_or(resize.min_pixels);
  resize.max_pixels = most.value_or(resize.max_pixels);
  return resize;
}

Json resize_json(const media::PreResize& resize) {
  return {static_cast<int>(resize.rule), resize.min_pixels, resize.max_pixels};
}

/// Of the models whose pictures are read.
bool has_vision_tower(const std::filesystem::path& model_directory) {
  std::error_code ignored;
  const auto path = model_directory / "config.json";
  if (model_directory.empty() || !std::filesystem::is_regular_file(path, ignored)) return false;
  const Json config = read_json_file(path);
  if (!config.is_object()) return false;
  const std::string type = json_get<std::string>(config, "model_type").value_or("");
  return type == "qwen2_vl" || type == "qwen2_5_vl";
}

}  // namespace

Json MediaSettings::to_json() const {
  std::error_code ignored;
  // mean and std change pixels, not tokens; a path may mean another file in another directory.
  return {{"processor",
           {processor.patch_size, processor.temporal_patch_size, processor.merge_size,
            processor.min_pixels, processor.max_pixels, processor.do_resize}},
          {"image_resize", resize_json(image_resize)},
          {"frame_resize", resize_json(frame_resize)},
          {"upright", upright},
          {"add_vision_id", add_vision_id},
          {"fetches", fetch != nullptr},
          {"video",
           {static_cast<int>(video.tool), video.fps, video.min_frames, video.max_frames,
            video.min_pixels, video.max_pixels, video.total_pixels}},
          {"media_dir", media_dir.empty() ? "" : std::filesystem::absolute(media_dir).string()},
          {"working_directory", std::filesystem::current_path(ignored).string()}};
}

bool is_on_the_web(const std::string& name) {
  return name.starts_with("http://") || name.starts_with("https://");
}

std::filesystem::path locate_media(const std::string& name, const MediaSettings& settings,
                                   const std::filesystem::path& row_folder) {
  const std::filesystem::path path = name;
  if (path.is_absolute()) return path;
  std::vector<std::filesystem::path> places;
  if (!settings.media_dir.empty()) places.push_back(settings.media_dir);
  places.emplace_back();
  places.push_back(row_folder);
  std::error_code ignored;
  for (const std::filesystem::path& place : places) {
    if (std::filesystem::exists(place / path, ignored))
      return std::filesystem::absolute(place / path).lexically_normal();
  }
  return std::filesystem::absolute(places.front() / path).lexically_normal();
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
  settings.video = video_by_rule(flags.pre_resize);
  const bool has_own_limits = flags.image_min_pixels || flags.image_max_pixels ||
                              flags.video_min_pixels || flags.video_max_pixels;
  if (flags.pre_resize == kQwenUtils) {
    settings.image_resize = media::PreResize::qwen_utils();
    if (flags.min_pixels) settings.image_resize.min_pixels = *flags.min_pixels;
    if (flags.max_pixels) settings.image_resize.max_pixels = *flags.max_pixels;
    require_order("max_pixels", settings.image_resize.min_pixels, settings.image_resize.max_pixels);
    // A list of frames is a list of pictures there.
    settings.frame_resize = settings.image_resize;
  } else {
    if (flags.min_pixels) settings.processor.min_pixels = *flags.min_pixels;
    if (flags.max_pixels) settings.processor.max_pixels = *flags.max_pixels;
    require_order("max_pixels", settings.processor.min_pixels, settings.processor.max_pixels);
    if (flags.pre_resize != kNone) {
      settings.image_resize =
          pictures_by_rule(flags.pre_resize, flags.image_min_pixels, flags.image_max_pixels);
      settings.video.min_pixels = flags.video_min_pixels.value_or(settings.video.min_pixels);
      settings.video.max_pixels = flags.video_max_pixels.value_or(settings.video.max_pixels);
      settings.frame_resize = media::pre_resize_of_frames(settings.video, 2);
      require_order("image_max_pixels", settings.image_resize.min_pixels,
                    settings.image_resize.max_pixels);
      require_order("video_max_pixels", settings.frame_resize.min_pixels,
                    settings.frame_resize.max_pixels);
    }
  }
  if (has_own_limits && (flags.pre_resize == kNone || flags.pre_resize == kQwenUtils)) {
    throw UsageError(
        tr("[pre_resize] {} has no image_max_pixels, image_min_pixels, video_max_pixels or "
           "video_min_pixels",
           flags.pre_resize),
        tr("--max_pixels and --min_pixels are the limits there"));
  }
  settings.upright = flags.upright;
  settings.add_vision_id = flags.add_vision_id;
  settings.video.fps = flags.video_fps.value_or(settings.video.fps);
  settings.video.max_frames = flags.video_max_frames.value_or(settings.video.max_frames);
  if (settings.video.min_frames > settings.video.max_frames)
    settings.video.min_frames = settings.video.max_frames;
  settings.media_dir = flags.media_dir;
  return settings;
}

}  // namespace danlu::data
