// data/media_settings.h: how the pictures and videos of rows become what a model reads.
#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "data/grounded_text.h"
#include "media/processor.h"
#include "media/sampling.h"

namespace danlu::data {

struct MediaSettings {
  media::ImageProcessor processor;  ///< of the model
  media::PreResize image_resize;    ///< what a training tool does to pictures before
  media::PreResize frame_resize;    ///< … and to the frames of videos that are lists of pictures
  /// Frames of lists get the size that those of a video file would get, after that of pictures, as
  /// in qwen_vl_utils since 0.0.14.
  bool lists_as_videos = false;
  media::VideoRule video =
      media::VideoRule::qwen_utils();  ///< of video files; its fps also of lists
  bool upright = true;         ///< turn pictures as EXIF says; false: as they lie in the file
  bool add_vision_id = false;  ///< "Picture 1: " before each
  BoxStyle boxes = {};         ///< how objects of rows are written
  std::filesystem::path media_dir = {};  ///< where relative paths are looked for first
  /// Gets the file of an http or https URL; empty: nothing is fetched, and such rows are dropped.
  /// Rows for which it throws UsageError (a host that is not allowed) or DataError (a file that is
  /// not there) are dropped as well; other errors end the work.
  std::function<std::string(const std::string& url)> fetch = {};
  std::vector<std::string> domains = {};  ///< from which `fetch` gets files

  /// All that grids depend on beside the files: an object of texts, numbers and booleans, named
  /// after the flags that say them where there are any.
  Json grid_json() const;
  /// All that tokens depend on: part of cache keys.
  Json to_json() const;
  /// All that an answer about given pictures depends on: not where they lie.
  Json answer_json() const;
};

/// What a user says about pictures. What is not said, the model's processor or the tool's rule
/// says.
struct MediaFlags {
  /// What is done to pictures before the processor: see pre_resize_names().
  std::string pre_resize = "none";
  std::optional<int64_t> min_pixels, max_pixels;  ///< of the processor, or of qwen_vl_utils
  /// Areas by the rules of LLaMA-Factory and MindSpeed-MM; MindSpeed-MM 2.0 has no least ones.
  std::optional<int64_t> image_min_pixels, image_max_pixels;
  /// The same rules set these for frames; the other rules set them for video files.
  std::optional<int64_t> video_min_pixels, video_max_pixels;
  /// The limits that qwen_vl_utils reads from the environment, of frames: of each, and of all of a
  /// video together. They have no effect by other rules.
  std::optional<int64_t> frame_min_pixels, frame_max_pixels, video_total_pixels;
  /// The same in tokens: of pictures (in the place of min_pixels, max_pixels) and of frames.
  std::optional<int64_t> image_min_tokens, image_max_tokens, frame_min_tokens, frame_max_tokens;
  bool upright = true, add_vision_id = false;
  std::optional<double> video_fps;
  std::optional<int64_t> video_max_frames, video_min_frames;
  std::optional<bool> boxes_of_seen_pixels;  ///< empty: as the model knows boxes
  bool boxes_are_lists = false;
  std::filesystem::path media_dir = {};
  std::vector<std::string> allowed_domains = {};  ///< of pictures on the web; empty: none

  bool operator==(const MediaFlags&) const = default;
};

/// "none", "qwen_vl_utils", "llamafactory", "mindspeed-mm-2.0", "mindspeed-mm-2.1".
const std::vector<std::string>& pre_resize_names();

/// Whether the processor of Qwen2-VL or Qwen2.5-VL lies in a model's directory.
bool reads_media(const std::filesystem::path& model_directory);

/// Why not, where reads_media says no: the model's config.json names no vision tower, or it does
/// and the file that says how pictures are read is missing. A clause without a full stop.
std::string why_no_media(const std::filesystem::path& model_directory);

/// Nothing if the model reads text alone. Errors: ModelError (a processor that is not supported, or
/// that is missing beside a model with a vision tower); UsageError (limits that the rule has not,
/// or that contradict each other).
std::optional<MediaSettings> media_settings_of(const std::filesystem::path& model_directory,
                                               const MediaFlags& flags);

/// Whether a row's `name` is an http or https URL.
bool is_on_the_web(const std::string& name);

/// Where a file that a row calls `name` is looked for, in order: as it is if absolute; else below
/// media_dir, in the working directory, in `row_folder`, the folder of the row's file. Absolute.
std::vector<std::filesystem::path> media_places(const std::string& name,
                                                const MediaSettings& settings,
                                                const std::filesystem::path& row_folder);

/// The first of media_places where it is; where it is in none, the first of all.
std::filesystem::path locate_media(const std::string& name, const MediaSettings& settings,
                                   const std::filesystem::path& row_folder);

}  // namespace danlu::data
