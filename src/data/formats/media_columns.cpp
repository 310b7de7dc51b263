#include "data/formats/media_columns.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "base/error.h"
#include "data/formats/media.h"
#include "data/formats/media_values.h"
#include "data/formats/objects.h"

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
  size_t offset, size;
  MediaKind kind;
  std::string file = {};  ///< of <img>FILE</img>
};

/// <img>FILE</img> at the beginning of `text`: its size, and FILE; 0 where it is none.
size_t file_tag_at(std::string_view text, std::string* file) {
  constexpr std::string_view kBegin = "<img>", kEnd = "</img>";
  if (!text.starts_with(kBegin)) return 0;
  const size_t end = text.find(kEnd);
  if (end == text.npos) return 0;
  *file = text.substr(kBegin.size(), end - kBegin.size());
  return names_media_file(*file) ? end + kEnd.size() : 0;
}

/// `files`: those of <img>FILE</img> too.
std::vector<Tag> tags_in(const std::string& content, bool files) {
  std::vector<Tag> tags;
  for (size_t at = content.find('<'); at != content.npos; at = content.find('<', at + 1)) {
    const std::string_view rest = std::string_view(content).substr(at);
    if (rest.starts_with(kImageTag)) tags.push_back({at, kImageTag.size(), MediaKind::kImage});
    if (rest.starts_with(kVideoTag)) tags.push_back({at, kVideoTag.size(), MediaKind::kVideo});
    Tag named{at, 0, MediaKind::kImage};
    if (files) named.size = file_tag_at(rest, &named.file);
    if (named.size > 0) tags.push_back(std::move(named));
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
    message->media.push_back(
        {content.size(), tag.file.empty()
                             ? media.take(tag.kind)
                             : MediaReference{.kind = tag.kind, .pieces = {{.name = tag.file}}}});
    begin = tag.offset + tag.size;
  }
  message->content = content.append(message->content, begin);
}

/// Writes as many tags as media lack before the first message that is not the system's.
void add_tags(const std::array<size_t, 2>& counts, ColumnMedia& media,
              text::Conversation* conversation) {
  const auto first =
      std::find_if(conversation->messages.begin(), conversation->messages.end(),
                   [](const text::Message& message) { return message.role != "system"; });
  if (first == conversation->messages.end()) return;
  std::string tags;
  for (const MediaKind kind : {MediaKind::kVideo, MediaKind::kImage}) {
    const size_t there = counts[static_cast<size_t>(kind)], wanted = media.of(kind).size();
    for (size_t i = there; i < wanted; ++i)
      tags += kind == MediaKind::kImage ? kImageTag : kVideoTag;
  }
  first->content.insert(0, tags);
}

using Tags = std::vector<std::vector<Tag>>;  ///< of each message

/// `counts`: of the tags whose media columns hold, by kind.
Tags tags_of(const text::Conversation& conversation, bool files, std::array<size_t, 2>* counts) {
  Tags tags;
  *counts = {};
  for (const text::Message& message : conversation.messages) {
    for (const Tag& tag : tags.emplace_back(tags_in(message.content, files)))
      if (tag.file.empty()) ++(*counts)[static_cast<size_t>(tag.kind)];
  }
  return tags;
}

bool attach_columns(const Json& row, const MediaColumns& columns, bool adds_tags,
                    text::Conversation* conversation, RowProblem* problem) {
  ColumnMedia media;
  if (!read_columns(row, columns, &media, problem)) return false;
  auto& messages = conversation->messages;
  if (std::any_of(messages.begin(), messages.end(),
                  [](const text::Message& message) { return !message.media.empty(); }))
    return fill_parts(conversation, media, problem);
  const bool files = media.images.empty();
  std::array<size_t, 2> counts{};
  Tags tags = tags_of(*conversation, files, &counts);
  if (media.has_column) {
    if (adds_tags) {
      add_tags(counts, media, conversation);
      tags = tags_of(*conversation, files, &counts);
    }
    if (!require_counts(counts, media, "tag", problem)) return false;
  } else {
    for (auto& of_message : tags)
      std::erase_if(of_message, [](const Tag& tag) { return tag.file.empty(); });
  }
  for (size_t i = 0; i < messages.size(); ++i) {
    if (!tags[i].empty()) replace_tags(tags[i], media, &messages[i]);
  }
  return true;
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
  columns.objects = names.actual("objects");
  return columns;
}

bool attach_media(const Json& row, const MediaColumns& columns, bool adds_tags,
                  text::Conversation* conversation, RowProblem* problem) {
  return attach_columns(row, columns, adds_tags, conversation, problem) &&
         (columns.objects.empty() || attach_objects(row, columns.objects, conversation, problem));
}

}  // namespace danlu::data
