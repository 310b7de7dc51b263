#include "data/formats/media_columns.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "base/error.h"
#include "data/formats/media_values.h"

namespace danlu::data {
namespace {

using text::MediaKind;
using text::MediaPlace;
using text::MediaReference;

constexpr std::string_view kImageTag = "<image>", kVideoTag = "<video>";

std::vector<std::string> columns_of(const FormatOptions& options, const ColumnNames& names,
                                    const char* one, const char* many,
                                    std::vector<std::string>* unused) {
  const auto mapped =
      options.map_keys.is_object() ? options.map_keys.find(many) : options.map_keys.end();
  if (mapped == options.map_keys.end()) return {names.actual(many), names.actual(one)};
  if (mapped->is_null()) {
    unused->insert(unused->end(), {one, many});
    return {};
  }
  if (!mapped->is_string()) {
    throw UsageError(tr("[map_keys] \"{}\" must name a column, got {}", many, kind_of(*mapped)));
  }
  return {mapped->get<std::string>()};
}

/// A tag in a message's content.
struct Tag {
  size_t offset;
  MediaKind kind;
};

std::vector<Tag> tags_in(const std::string& content) {
  std::vector<Tag> tags;
  for (size_t at = content.find('<'); at != content.npos; at = content.find('<', at + 1)) {
    const std::string_view rest = std::string_view(content).substr(at);
    if (rest.starts_with(kImageTag)) tags.push_back({at, MediaKind::kImage});
    if (rest.starts_with(kVideoTag)) tags.push_back({at, MediaKind::kVideo});
  }
  return tags;
}

/// What the columns of a row hold, taken in order.
struct ColumnMedia {
  std::vector<MediaReference> images, videos;
  size_t next_image = 0, next_video = 0;
  bool has_column = false;  ///< of either kind, be it empty

  size_t size() const { return images.size() + videos.size(); }
  std::vector<MediaReference>& of(MediaKind kind) {
    return kind == MediaKind::kImage ? images : videos;
  }
  MediaReference take(MediaKind kind) {
    return std::move(of(kind)[kind == MediaKind::kImage ? next_image++ : next_video++]);
  }
};

bool read_columns(const Json& row, const MediaColumns& columns, ColumnMedia* media,
                  RowProblem* problem) {
  for (const MediaKind kind : {MediaKind::kImage, MediaKind::kVideo}) {
    for (const std::string& column : kind == MediaKind::kImage ? columns.images : columns.videos) {
      const Json* value = find_value(row, column);
      // A null of the column is a row without pictures, not one without the column.
      media->has_column |= row.contains(column);
      if (!value) continue;
      if (!read_media_column(*value, column, kind, &media->of(kind), problem)) return false;
    }
  }
  return true;
}

std::string counted(size_t count, const char* one) {
  return fmt::format("{} {}{}", count, one, count == 1 ? "" : "s");
}

/// Whether there are as many places as media of each kind. `place`: "tag" or "part".
bool require_counts(const std::array<size_t, 2>& places, ColumnMedia& media, const char* place,
                    RowProblem* problem) {
  for (const MediaKind kind : {MediaKind::kImage, MediaKind::kVideo}) {
    const size_t wanted = places[static_cast<size_t>(kind)], given = media.of(kind).size();
    if (wanted == given) continue;
    const bool is_image = kind == MediaKind::kImage;
    *problem = {
        is_image ? "<image> and pictures differ in number" : "<video> and videos differ in number",
        fmt::format("{}, {}", counted(wanted, place),
                    counted(given, is_image ? "picture" : "video"))};
    return false;
  }
  return true;
}

/// Media of parts; those without a source get the columns'.
bool fill_parts(text::Conversation* conversation, ColumnMedia& media, RowProblem* problem) {
  std::array<size_t, 2> without{};
  size_t with = 0;
  for (const text::Message& message : conversation->messages) {
    for (const MediaPlace& place : message.media) {
      place.media.pieces.empty() ? ++without[static_cast<size_t>(place.media.kind)] : ++with;
    }
  }
  if (with > 0 && media.size() > 0) {
    *problem = {"pictures or videos both in the messages and in a column", ""};
    return false;
  }
  if (!require_counts(without, media, "part without a source", problem)) return false;
  for (text::Message& message : conversation->messages) {
    for (MediaPlace& place : message.media) {
      if (place.media.pieces.empty()) place.media = media.take(place.media.kind);
    }
  }
  return true;
}

/// The content without its tags, and what stands in their places.
void replace_tags(const std::vector<Tag>& tags, ColumnMedia& media, text::Message* message) {
  std::string content;
  size_t begin = 0;
  for (const Tag& tag : tags) {
    content.append(message->content, begin, tag.offset - begin);
    message->media.push_back({content.size(), media.take(tag.kind)});
    begin = tag.offset + (tag.kind == MediaKind::kImage ? kImageTag : kVideoTag).size();
  }
  message->content = content.append(message->content, begin);
}

/// Puts all media of a row before its first question.
bool put_first(text::Conversation* conversation, ColumnMedia& media) {
  for (text::Message& message : conversation->messages) {
    if (message.role != "user") continue;
    for (const MediaKind kind : {MediaKind::kImage, MediaKind::kVideo}) {
      const size_t count = media.of(kind).size();
      for (size_t i = 0; i < count; ++i) message.media.push_back({0, media.take(kind)});
    }
    return true;
  }
  return false;
}

}  // namespace

bool MediaColumns::holds(const std::string& column) const {
  return std::ranges::any_of(std::array{&images, &videos, &unused}, [&](const auto* names) {
    return std::find(names->begin(), names->end(), column) != names->end();
  });
}

MediaColumns media_columns(const FormatOptions& options, const ColumnNames& names) {
  MediaColumns columns;
  columns.images = columns_of(options, names, "image", "images", &columns.unused);
  columns.videos = columns_of(options, names, "video", "videos", &columns.unused);
  return columns;
}

bool attach_media(const Json& row, const MediaColumns& columns, bool lone_media_first,
                  text::Conversation* conversation, RowProblem* problem) {
  ColumnMedia media;
  if (!read_columns(row, columns, &media, problem)) return false;
  const auto& messages = conversation->messages;
  if (std::any_of(messages.begin(), messages.end(),
                  [](const text::Message& message) { return !message.media.empty(); }))
    return fill_parts(conversation, media, problem);
  if (!media.has_column) return true;
  std::vector<std::vector<Tag>> tags;
  std::array<size_t, 2> counts{};
  for (const text::Message& message : messages) {
    for (const Tag& tag : tags.emplace_back(tags_in(message.content)))
      ++counts[static_cast<size_t>(tag.kind)];
  }
  if (lone_media_first && counts[0] + counts[1] == 0 && put_first(conversation, media)) return true;
  if (!require_counts(counts, media, "tag", problem)) return false;
  for (size_t i = 0; i < messages.size(); ++i) {
    if (!tags[i].empty()) replace_tags(tags[i], media, &conversation->messages[i]);
  }
  return true;
}

}  // namespace danlu::data
