#include "data/formats/media.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/lower_case.h"
#include "data/formats/columns.h"
#include "data/formats/media_values.h"

namespace danlu::data {
namespace {

/// "pictures" for image and images; "" for a column of any other name.
std::string_view media_of_column(std::string_view column) {
  if (column == "image" || column == "images") return "pictures";
  if (column == "video" || column == "videos") return "video";
  if (column == "audio" || column == "audios") return "audio";
  return "";
}

/// Hugging Face's columns hold {"bytes": null, "path": null} where a row has no picture.
bool holds_something(const Json& value) {
  if (value.is_string()) {
    const std::string& text = value.get_ref<const std::string&>();
    return !text.empty() && text != "[]";
  }
  return value.is_structured() && std::any_of(value.begin(), value.end(), holds_something);
}

bool has_placeholder(const Json& value) {
  if (value.is_string()) {
    const std::string& text = value.get_ref<const std::string&>();
    return std::ranges::any_of(std::array{"<image>", "<video>", "<audio>"},
                               [&](const char* tag) { return text.find(tag) != text.npos; });
  }
  return value.is_structured() && std::any_of(value.begin(), value.end(), has_placeholder);
}

/// "image" of "image_url" and "input_image".
std::string_view kind_of_block(std::string_view name) {
  if (name.starts_with("input_")) name.remove_prefix(6);
  if (name.ends_with("_url")) name.remove_suffix(4);
  return name;
}

}  // namespace

bool names_media_file(const std::string& text) {
  static constexpr std::array<std::string_view, 17> kEndings{
      "jpg", "jpeg", "png", "webp", "gif", "bmp",  "tif", "tiff", "mp4",
      "avi", "mov",  "mkv", "webm", "wav", "flac", "mp3", "ogg"};
  const size_t dot = text.rfind('.');
  if (dot == text.npos || text.size() - dot > 5) return false;
  const std::string ending = lower_case(std::string_view(text).substr(dot + 1));
  return std::find(kEndings.begin(), kEndings.end(), ending) != kEndings.end();
}

std::optional<std::string> media_in(const Json& row, bool text_is_named, const MediaColumns* read) {
  if (!row.is_object()) return std::nullopt;
  for (const auto& [column, value] : row.items()) {
    if (read && read->holds(column)) continue;
    const std::string_view media = media_of_column(column);
    if (!media.empty() && holds_something(value) && (!text_is_named || has_placeholder(row)))
      return fmt::format("column \"{}\" holds {}", column, media);
    if (media.empty() && value.is_string() &&
        names_media_file(value.get_ref<const std::string&>()) && has_placeholder(row)) {
      return tr("column \"{}\" names a file that a placeholder such as <image> stands for", column);
    }
  }
  return std::nullopt;
}

std::string media_block_name(const Json& block) {
  if (!block.is_object()) return "";
  const auto type = block.find("type");
  if (type != block.end()) return type->is_string() ? type->get<std::string>() : "";
  for (const char* key : {"image", "image_url", "video", "audio"}) {
    if (find_value(block, key)) return key;
  }
  return "";
}

bool is_audio_block(const Json& block) {
  const std::string name = media_block_name(block);
  return kind_of_block(name) == "audio";
}

bool is_media_block(const Json& block) {
  const std::string name = media_block_name(block);
  const std::string_view kind = kind_of_block(name);
  return kind == "image" || kind == "video" || kind == "audio";
}

void refuse_media(const std::string& what) {
  throw DataError(
      tr("{}: the model reads text alone", what),
      tr("pictures need a model such as Qwen2-VL, with preprocessor_config.json beside its "
         "tokenizer; to use the text alone, take such columns and their placeholders out of the "
         "rows, or name the text column with --json-keys"));
}

void refuse_unread_media(const std::string& what) {
  throw DataError(tr("{}: nothing here would read it", what),
                  tr("pictures and videos belong to conversations, in columns images and videos "
                     "(--columns '{{\"photo\":\"images\"}}' names another); sound is not read"));
}

namespace {

[[noreturn]] void refuse_problem(const std::string& origin, const RowProblem& problem) {
  throw DataError(tr("{}: {}{}", origin, translated_filled(problem.reason),
                     problem.detail.empty() ? "" : " (" + problem.detail + ")"));
}

/// A content that is a list without pictures goes to the template as it is.
void take_parts(const std::string& origin, bool reads_media, text::Message* message) {
  const auto content = message->extra.find("content");
  if (content == message->extra.end() || !content->is_array()) return;
  if (std::none_of(content->begin(), content->end(), is_media_block)) return;
  RowProblem problem;
  for (const Json& part : *content) {
    const std::string name = media_block_name(part);
    if (is_media_block(part)) {
      const std::string what = tr("{}: a message holds \"{}\"", origin, name);
      if (!reads_media) refuse_media(what);
      if (is_audio_block(part)) refuse_unread_media(what);
      text::MediaPlace& place = message->media.emplace_back();
      place.offset = message->content.size();
      if (!read_media_part(part, &place.media, &problem)) refuse_problem(origin, problem);
      continue;
    }
    const Json* text = part.is_object() ? find_value(part, "text") : nullptr;
    if (!text || !text->is_string())
      refuse_problem(origin, {"a message holds something other than text and pictures", name});
    message->content += text->get_ref<const std::string&>();
  }
  message->extra.erase("content");
}

}  // namespace

void take_media(const Json& row, const std::string& origin, bool reads_media,
                text::Conversation* conversation) {
  const MediaColumns columns = media_columns({}, ColumnNames(Json::object()));
  if (const auto what = media_in(row, false, reads_media ? &columns : nullptr)) {
    const std::string where = fmt::format("{}: {}", origin, *what);
    reads_media ? refuse_unread_media(where) : refuse_media(where);
  }
  for (text::Message& message : conversation->messages) take_parts(origin, reads_media, &message);
  RowProblem problem;
  if (row.is_object() && !attach_media(row, columns, true, conversation, &problem))
    refuse_problem(origin, problem);
}

}  // namespace danlu::data
