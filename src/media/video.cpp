#include "media/video.h"

#include <algorithm>
#include <functional>
#include <memory>

#include "media/media_error.h"
#include "media/media_file.h"
#include "media/named.h"
#include "media/plugin.h"
#include "media/video/reader.h"

namespace danlu::media {
namespace {

using Bytes = std::span<const std::byte>;

OpenVideo& video_opener() {
  static const auto opener = reinterpret_cast<OpenVideo*>(from_media_plugin(
      "libdanlu_video.so", "danlu_video_open", "libavformat, libavcodec, libswscale"));
  return *opener;
}

[[noreturn]] void throw_video_status(DecodeStatus status, const std::string& name,
                                     const std::string& why) {
  switch (status) {
    case DecodeStatus::kTooLarge:
      throw MediaError(MediaFault::kTooLarge, tr("{}: its frames have too many pixels", name));
    case DecodeStatus::kTruncated:
      throw MediaError(MediaFault::kTruncated, tr("{}: the file ends within its video", name),
                       tr("copy or download it again, or drop the row"));
    case DecodeStatus::kUnsupported:
      throw MediaError(MediaFault::kUnsupported,
                       tr("{}: a kind of video that is not read: {}", name, why),
                       tr("convert it to MP4 (H.264)"));
    case DecodeStatus::kNoMemory:
      throw MemoryError(tr("{}: too little memory for its frames", name));
    default:
      throw MediaError(MediaFault::kDamaged, tr("{}: not a video, or damaged: {}", name, why),
                       tr("copy or download it again, or drop the row"));
  }
}

/// A reader whose failures are MediaErrors with the video's name.
class NamedReader {
 public:
  NamedReader(Bytes bytes, const std::string& name, int64_t max_pixels) : name_(name) {
    if (bytes.empty()) throw MediaError(MediaFault::kNotAPicture, tr("{}: an empty file", name));
    VideoReader* opened = nullptr;
    std::string why;
    const DecodeStatus status = video_opener()(reinterpret_cast<const uint8_t*>(bytes.data()),
                                               bytes.size(), max_pixels, opened, why);
    reader_.reset(opened);
    if (!reader_) throw_video_status(status, name_, why);
  }

  const VideoFacts& facts() const { return reader_->facts(); }
  bool next() {
    std::string why;
    const DecodeStatus status = reader_->next(why);
    if (status != DecodeStatus::kDone) throw_video_status(status, name_, why);
    return reader_->is_there();
  }
  Picture picture() {
    Picture out;
    std::string why;
    const DecodeStatus status = reader_->picture(out, why);
    if (status != DecodeStatus::kDone) throw_video_status(status, name_, why);
    return out;
  }

 private:
  const std::string& name_;
  std::unique_ptr<VideoReader> reader_;
};

/// The facts, and the frames that are there: of a container that does not count them they are
/// counted, up to the last one that could be chosen.
struct KnownVideo {
  VideoFacts facts;
  FrameChoice choice;
};

KnownVideo known_video(Bytes bytes, const std::string& name, const VideoRule& rule,
                       int64_t max_pixels) {
  NamedReader reader(bytes, name, max_pixels);
  KnownVideo known{reader.facts(), {}};
  const bool counted = known.facts.total_frames > 0;
  const bool needs_count = rule.tool == PreResizeRule::kQwenUtils;
  int64_t there = 0;
  if (!counted) {
    while ((needs_count || there < rule.max_frames) && reader.next()) ++there;
    if (there == 0) {
      throw MediaError(MediaFault::kTruncated, tr("{}: no frame can be decoded", name));
    }
    if (needs_count) known.facts.total_frames = there;
  }
  if (!rule.upright) known.facts.orientation = 1;
  known.choice = named(name, [&] { return choose_frames(known.facts, rule); });
  if (!counted && !needs_count) {
    std::erase_if(known.choice.indices, [&](int64_t index) { return index >= there; });
  }
  return known;
}

/// Decodes to the last chosen frame, and calls `take` with the reader at each chosen one.
template <typename Take>
void each_chosen(Bytes bytes, const std::string& name, const KnownVideo& known, int64_t max_pixels,
                 const Take& take) {
  NamedReader reader(bytes, name, max_pixels);
  const auto& indices = known.choice.indices;
  size_t taken = 0;
  int64_t index = 0;
  for (; taken < indices.size() && reader.next(); ++index) {
    for (; taken < indices.size() && indices[taken] == index; ++taken) take(reader);
  }
  // A few frames fewer than the container counts are usual.
  constexpr double kUsual = 0.9;
  if (taken < indices.size() &&
      (taken == 0 ||
       static_cast<double>(index) < kUsual * static_cast<double>(known.facts.total_frames))) {
    throw MediaError(
        MediaFault::kTruncated,
        tr("{}: {} of its {} frames can be decoded", name, index, known.facts.total_frames),
        tr("copy or download it again, or drop the row"));
  }
}

Picture copy_of(const Picture& picture) {
  Picture copy(picture.size);
  std::copy_n(picture.rgb.data(), picture.rgb.size(), copy.rgb.data());
  return copy;
}

int64_t even_count(size_t frames) { return static_cast<int64_t>(frames + frames % 2); }

/// Frames of one size, made of raw frames one by one.
class SizedFrames {
 public:
  /// `list`: what the size of pictures becomes then, see list_size.
  SizedFrames(const ImageProcessor& processor, const PreResize& pre_resize,
              std::function<Size(Size)> list = {})
      : processor_(processor), pre_resize_(pre_resize), list_(std::move(list)) {}

  void add(RawPicture raw) {
    auto steps = tool_steps(raw.size, processor_, pre_resize_);
    const Size before = steps.empty() ? raw.size : steps.back().to;
    if (frames_.empty()) size_ = processor_size(before, processor_, pre_resize_);
    if (before != size_) steps.push_back({size_, processor_.filter, true});
    if (const Size last = list_ ? list_(size_) : size_; last != size_)
      steps.push_back({last, Filter::kBicubic, true});
    frames_.push_back(sized_picture(std::move(raw), steps, pre_resize_));
  }
  /// Copies of the last one, so that the grid is the one that was promised.
  void fill_up_to(size_t count) {
    while (frames_.size() < count) frames_.push_back(copy_of(frames_.back()));
  }
  Patches patches() const { return patches_of(frames_, processor_); }

 private:
  const ImageProcessor& processor_;
  const PreResize& pre_resize_;
  std::function<Size(Size)> list_;
  Size size_;
  std::vector<Picture> frames_;
};

RawPicture raw_of(Picture picture) {
  RawPicture raw;
  raw.size = picture.size;
  raw.bytes = std::move(picture.rgb);
  return raw;
}

}  // namespace

VideoFacts video_facts(Bytes bytes, const std::string& name, const VideoRule& rule,
                       int64_t max_pixels) {
  return known_video(bytes, name, rule, max_pixels).facts;
}

VideoFrames video_frames(Bytes bytes, const std::string& name, const VideoRule& rule,
                         int64_t max_pixels) {
  const KnownVideo known = known_video(bytes, name, rule, max_pixels);
  VideoFrames out{known.choice, {}};
  each_chosen(bytes, name, known, max_pixels, [&](NamedReader& reader) {
    RawPicture frame = turned_upright(raw_of(reader.picture()), known.facts.orientation);
    out.frames.push_back(to_rgb(std::move(frame), Alpha::kDropped));
  });
  while (out.frames.size() < known.choice.indices.size()) {
    out.frames.push_back(copy_of(out.frames.back()));
  }
  return out;
}

VideoPatches process_video(Bytes bytes, const std::string& name, const ImageProcessor& processor,
                           const VideoRule& rule, int64_t max_pixels) {
  const KnownVideo known = known_video(bytes, name, rule, max_pixels);
  const size_t count = known.choice.indices.size();
  const PreResize pre_resize = pre_resize_of_frames(rule, even_count(count));
  SizedFrames frames(processor, pre_resize);
  each_chosen(bytes, name, known, max_pixels, [&](NamedReader& reader) {
    RawPicture frame = turned_upright(raw_of(reader.picture()), known.facts.orientation);
    named(name, [&] { return frames.add(std::move(frame)); });
  });
  frames.fill_up_to(count);
  return {frames.patches(), second_per_grid(known.choice.fps, processor)};
}

VideoPatches process_video(const std::filesystem::path& file, const ImageProcessor& processor,
                           const VideoRule& rule, int64_t max_pixels) {
  const MappedFile map = open_media_file(file);
  return process_video(map.bytes(), file.string(), processor, rule, max_pixels);
}

Size list_size(Size picture, const ImageProcessor& processor, const VideoRule& rule, size_t count) {
  const PreResize limits = pre_resize_of_frames(rule, even_count(count));
  const auto steps = tool_steps(picture, processor, limits);
  return steps.empty() ? picture : steps.back().to;
}

VideoPatches process_frames(std::span<const NamedBytes> files, double fps,
                            const ImageProcessor& processor, const PreResize& pre_resize,
                            const DecodeOptions& options, const VideoRule* as_video) {
  if (files.empty()) {
    throw MediaError(MediaFault::kBadShape, tr("a video that is a list of no pictures"));
  }
  std::function<Size(Size)> list;
  if (as_video)
    list = [&](Size size) { return list_size(size, processor, *as_video, files.size()); };
  SizedFrames frames(processor, pre_resize, std::move(list));
  for (const NamedBytes& file : files) {
    RawPicture raw = decode_raw(file.bytes, file.name, options);
    named(file.name, [&] { return frames.add(std::move(raw)); });
  }
  return {frames.patches(), second_per_grid(fps, processor)};
}

std::pair<Grid, double> grid_of_video(const std::filesystem::path& file,
                                      const ImageProcessor& processor, const VideoRule& rule,
                                      int64_t max_pixels) {
  const MappedFile map = open_media_file(file);
  return grid_of_video(map.bytes(), file.string(), processor, rule, max_pixels);
}

std::pair<Grid, double> grid_of_video(Bytes bytes, const std::string& name,
                                      const ImageProcessor& processor, const VideoRule& rule,
                                      int64_t max_pixels) {
  const KnownVideo known = known_video(bytes, name, rule, max_pixels);
  const int64_t count = even_count(known.choice.indices.size());
  const auto [width, height] = known.facts.upright();
  Grid grid = named(name, [&, w = width, h = height] {
    return grid_of(w, h, processor, pre_resize_of_frames(rule, count));
  });
  const int64_t together = processor.temporal_patch_size;
  grid.t = (static_cast<int64_t>(known.choice.indices.size()) + together - 1) / together;
  return {grid, second_per_grid(known.choice.fps, processor)};
}

void require_whole_video(Bytes bytes, const std::string& name, const VideoRule& rule,
                         int64_t max_pixels) {
  each_chosen(bytes, name, known_video(bytes, name, rule, max_pixels), max_pixels,
              [](NamedReader&) {});
}

}  // namespace danlu::media
