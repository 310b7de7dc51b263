#include "data/media_encoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <span>
#include <tuple>

#include "base/error.h"
#include "base/log.h"
#include "data/grounded_text.h"
#include "media/media_error.h"
#include "media/media_file.h"
#include "media/named.h"
#include "media/picture_end.h"
#include "media/picture_size.h"
#include "media/video.h"

namespace danlu::data {
namespace {

using text::MediaKind;

/// Frames of one list; more is a mistake or an attack, and each is opened.
constexpr size_t kMaxListedFrames = 4096;

constexpr const char* kOnTheWeb =
    "a picture on the web: --allow_media_domains says from where they are fetched";

/// False with the problem of a row whose file is not to be had.
bool fetch_file(const std::string& url, const MediaSettings& settings, MediaFile* file,
                RowProblem* problem) {
  *problem = {kOnTheWeb, url};
  if (!settings.fetch) return false;
  try {
    *file = {url, std::make_shared<const std::string>(settings.fetch(url))};
    return true;
  } catch (const UsageError& error) {
    *problem = {kOnTheWeb, error.what()};
  } catch (const DataError& error) {
    *problem = {kNotFetched, error.what()};
  }
  return false;
}

std::vector<std::string> places_of(const text::MediaReference& reference,
                                   const MediaSettings& settings,
                                   const std::filesystem::path& row_folder) {
  std::vector<std::string> places;
  for (const text::MediaPiece& piece : reference.pieces) {
    if (piece.bytes || is_on_the_web(piece.name)) continue;
    for (const auto& place : media_places(piece.name, settings, row_folder))
      places.push_back(place.string());
  }
  return places;
}

/// look(contents of `file`).
template <typename Look>
auto looked_at(const MediaFile& file, const Look& look) {
  if (file.bytes) return look(std::as_bytes(std::span(*file.bytes)));
  const MappedFile map = media::open_media_file(file.path);
  return look(map.bytes());
}

/// Once, with the first such file's name.
void warn_of_white(const std::string& name) {
  static std::atomic<bool> is_told{false};
  if (is_told.exchange(true)) return;
  log::warning(
      "{}: grey of 16 bits, of which all above 255 of 65535 is white to the model, as in "
      "the trainers of other systems: convert such pictures to 8 bits to keep their greys",
      name);
}

}  // namespace

media::Grid MediaEncoder::measure_picture(const MediaFile& file, const media::PreResize& resize,
                                          media::Size* shown) const {
  const media::PictureSize size = looked_at(file, [&](std::span<const std::byte> bytes) {
    const media::PictureSize found = media::picture_size(bytes, file.path);
    if (check_ == MediaCheck::kWhole) media::require_whole_picture(bytes, found.format, file.path);
    return found;
  });
  if (size.is_grey16) warn_of_white(file.path);
  *shown = settings_.upright ? size.upright() : size.stored;
  return media::named(file.path, [&] {
    return media::grid_of(shown->width, shown->height, settings_.processor, resize);
  });
}

/// The processor resizes all frames to the size that the first one gets.
media::Grid MediaEncoder::measure_frames(const MediaSpan& span) const {
  media::Grid grid;
  for (size_t i = 0; i < span.files.size(); ++i) {
    media::Size shown;
    const media::Grid frame = measure_picture(span.files[i], settings_.frame_resize, &shown);
    if (i == 0) grid = frame;
  }
  const int64_t of_patch = settings_.processor.temporal_patch_size;
  if (settings_.lists_as_videos) {
    const media::ImageProcessor& processor = settings_.processor;
    const media::Size size =
        media::list_size({grid.w * processor.patch_size, grid.h * processor.patch_size}, processor,
                         settings_.video, span.files.size());
    grid.w = size.width / processor.patch_size;
    grid.h = size.height / processor.patch_size;
  }
  grid.t = (static_cast<int64_t>(span.files.size()) + of_patch - 1) / of_patch;
  return grid;
}

void MediaEncoder::measure_video(MediaSpan* span) const {
  const MediaFile& file = span->files.at(0);
  looked_at(file, [&](std::span<const std::byte> bytes) {
    std::tie(span->grid, span->second_per_grid) =
        media::grid_of_video(bytes, file.path, settings_.processor, settings_.video);
    if (check_ == MediaCheck::kWhole) media::require_whole_video(bytes, file.path, settings_.video);
  });
}

bool MediaEncoder::measure_one(const text::MediaReference& reference,
                               const std::filesystem::path& row_folder, MediaSpan* span,
                               RowProblem* problem) const {
  span->kind = reference.kind;
  span->is_frame_list = reference.is_frame_list;
  if (reference.pieces.size() > kMaxListedFrames) {
    *problem = {"a video of too many frames", fmt::format("{} of them", reference.pieces.size())};
    return false;
  }
  for (const text::MediaPiece& piece : reference.pieces) {
    if (!piece.bytes && is_on_the_web(piece.name)) {
      if (!fetch_file(piece.name, settings_, &span->files.emplace_back(), problem)) return false;
      continue;
    }
    span->files.push_back(
        {piece.bytes ? piece.name : locate_media(piece.name, settings_, row_folder).string(),
         piece.bytes});
  }
  if (reference.kind == MediaKind::kImage) {
    span->grid = measure_picture(span->files.at(0), settings_.image_resize, &span->shown);
  } else if (reference.is_frame_list) {
    span->grid = measure_frames(*span);
    span->second_per_grid =
        media::second_per_grid(reference.fps.value_or(settings_.video.fps), settings_.processor);
  } else if (reference.fps && *reference.fps != settings_.video.fps) {
    *problem = {"a video file with a rate of its own",
                fmt::format("fps {}; --video_fps holds for all", *reference.fps)};
    return false;
  } else {
    measure_video(span);
  }
  span->count = span->grid.visual_tokens(settings_.processor.merge_size);
  return true;
}

bool MediaEncoder::measure(const text::Conversation& conversation,
                           const std::filesystem::path& row_folder, const std::string& row,
                           std::vector<MediaSpan>* spans, RowProblem* problem) const {
  for (const text::MediaReference* reference : text::media_of(conversation)) {
    MediaSpan& span = spans->emplace_back();
    span.row = row;
    try {
      if (!measure_one(*reference, row_folder, &span, problem)) return false;
    } catch (const media::MediaError& error) {
      *problem = {media::reason_of(error.fault()), error.what(),
                  places_of(*reference, settings_, row_folder)};
      return false;
    }
  }
  return true;
}

std::optional<text::Conversation> MediaEncoder::written(const text::Conversation& conversation,
                                                        const std::vector<MediaSpan>& spans,
                                                        RowProblem* problem) const {
  text::Conversation with_objects = conversation;
  if (!write_objects(&with_objects, spans, settings_.boxes, settings_.processor.patch_size,
                     problem))
    return std::nullopt;
  return text::with_placeholders(with_objects, settings_.add_vision_id);
}

bool MediaEncoder::expand(text::EncodedConversation* encoded, std::vector<MediaSpan>* spans,
                          RowProblem* problem) const {
  const auto pads = std::count_if(encoded->ids.begin(), encoded->ids.end(),
                                  [&](text::TokenId id) { return tokens_.is_pad(id); });
  if (pads == 0 && spans->empty()) return true;
  text::EncodedConversation expanded;
  size_t next = 0;
  for (size_t i = 0; i < encoded->ids.size(); ++i) {
    const text::TokenId id = encoded->ids[i];
    if (!tokens_.is_pad(id)) {
      expanded.ids.push_back(id);
      // What opens and closes a picture is no part of an answer either.
      const bool opens =
          id == tokens_.start && i + 1 < encoded->ids.size() && tokens_.is_pad(encoded->ids[i + 1]);
      const bool closes = id == tokens_.end && i > 0 && tokens_.is_pad(encoded->ids[i - 1]);
      expanded.labels.push_back(opens || closes ? kIgnoreLabel : encoded->labels[i]);
      continue;
    }
    if (next == spans->size() || id != tokens_.pad_of((*spans)[next].kind)) break;
    MediaSpan& span = (*spans)[next++];
    span.begin = static_cast<int64_t>(expanded.ids.size());
    expanded.ids.insert(expanded.ids.end(), static_cast<size_t>(span.count), id);
    expanded.labels.resize(expanded.ids.size(), kIgnoreLabel);
  }
  if (next != spans->size() || pads != std::ssize(*spans)) {
    *problem = {"the text has other placeholders than pictures and videos",
                fmt::format("{} for {}", pads, spans->size())};
    return false;
  }
  *encoded = std::move(expanded);
  return true;
}

std::shared_ptr<const MediaEncoder> make_media_encoder(const std::optional<MediaSettings>& settings,
                                                       const text::Tokenizer* tokenizer,
                                                       MediaCheck check) {
  if (!settings || !tokenizer) return nullptr;
  const auto tokens = text::media_tokens(*tokenizer);
  if (!tokens) {
    throw ModelError(tr("the tokenizer has no {}, which stands for pictures", text::kImagePad),
                     tr("use the tokenizer that came with the model"));
  }
  return std::make_shared<MediaEncoder>(*settings, *tokens, check);
}

}  // namespace danlu::data
