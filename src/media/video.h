// media/video.h: videos as what a vision tower reads: files with frames inside, and lists of
// pictures.
#pragma once
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "media/patches.h"
#include "media/sampling.h"

namespace danlu::media {

/// The chosen frames of a video at their own size.
struct VideoFrames {
  FrameChoice choice;  ///< the frames that are there
  std::vector<Picture> frames;
};

struct VideoPatches {
  Patches patches;
  double second_per_grid = 1;  ///< seconds between two entries of the grid's time axis
};

/// What the container says; qwen_vl_utils' rule needs the number of frames, so where the container
/// does not say it all frames are decoded and counted.
/// Errors: MediaError; DeviceError if the library or what it needs is absent.
VideoFacts video_facts(std::span<const std::byte> bytes, const std::string& name,
                       const VideoRule& rule, int64_t max_pixels = kMaxPixels);

/// Frames by `rule`, in order. If a video ends before its last chosen frame, the frames that are
/// there are taken; it is truncated if the container speaks of more frames than a tenth above.
/// Errors: MediaError (kTruncated, kDamaged, kUnsupported, kTooLarge, kNotAPicture, kBadShape);
/// DeviceError if libdanlu_video.so or what it needs is absent.
VideoFrames video_frames(std::span<const std::byte> bytes, const std::string& name,
                         const VideoRule& rule, int64_t max_pixels = kMaxPixels);

/// mp4, mkv, webm, avi, gif, … to patches; frames are resized one by one as they are decoded.
/// Errors: as video_frames and resize_steps.
VideoPatches process_video(std::span<const std::byte> bytes, const std::string& name,
                           const ImageProcessor& processor, const VideoRule& rule,
                           int64_t max_pixels = kMaxPixels);
/// Errors: also MediaError kMissing.
VideoPatches process_video(const std::filesystem::path& file, const ImageProcessor& processor,
                           const VideoRule& rule, int64_t max_pixels = kMaxPixels);

/// A picture's file as it lies in memory.
struct NamedBytes {
  std::string name;  ///< for errors
  std::span<const std::byte> bytes;
};
/// The size that a list of `count` frames gets whose first one has `picture`, by the limits that
/// `rule` has for frames. Errors: MediaError kBadShape.
Size list_size(Size picture, const ImageProcessor& processor, const VideoRule& rule, size_t count);

/// A video whose frames are picture files, each resized as a picture of its own by `pre_resize`;
/// the processor's size is that of the first frame for all, then list_size by `as_video` where that
/// is given. `fps`: of the list. Errors: as process_picture; kBadShape if it is empty.
VideoPatches process_frames(std::span<const NamedBytes> files, double fps,
                            const ImageProcessor& processor, const PreResize& pre_resize = {},
                            const DecodeOptions& options = {}, const VideoRule* as_video = nullptr);

/// The grid that process_video will give, without decoding more than video_facts does, and the
/// seconds between its entries. A container without a count of frames may hold fewer than the
/// others' rule names: then frames are counted too. Errors: as process_video.
std::pair<Grid, double> grid_of_video(const std::filesystem::path& file,
                                      const ImageProcessor& processor, const VideoRule& rule,
                                      int64_t max_pixels = kMaxPixels);
std::pair<Grid, double> grid_of_video(std::span<const std::byte> bytes, const std::string& name,
                                      const ImageProcessor& processor, const VideoRule& rule,
                                      int64_t max_pixels = kMaxPixels);
/// Decodes up to the last frame that `rule` chooses: whatever would keep process_video from its
/// frames is found. Errors: as video_frames.
void require_whole_video(std::span<const std::byte> bytes, const std::string& name,
                         const VideoRule& rule, int64_t max_pixels = kMaxPixels);

}  // namespace danlu::media
