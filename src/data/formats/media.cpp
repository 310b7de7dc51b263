#include "data/formats/media.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/lower_case.h"
#include "base/message.h"
#include "base/not_here.h"

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

bool names_media_file(const std::string& text) {
  static constexpr std::array<std::string_view, 17> kEndings{
      "jpg", "jpeg", "png", "webp", "gif", "bmp",  "tif", "tiff", "mp4",
      "avi", "mov",  "mkv", "webm", "wav", "flac", "mp3", "ogg"};
  const size_t dot = text.rfind('.');
  if (dot == text.npos || text.size() - dot > 5) return false;
  const std::string ending = lower_case(std::string_view(text).substr(dot + 1));
  return std::find(kEndings.begin(), kEndings.end(), ending) != kEndings.end();
}

bool has_placeholder(const Json& value) {
  if (value.is_string()) {
    const std::string& text = value.get_ref<const std::string&>();
    return std::ranges::any_of(std::array{"<image>", "<video>", "<audio>"},
                               [&](const char* tag) { return text.find(tag) != text.npos; });
  }
  return value.is_structured() && std::any_of(value.begin(), value.end(), has_placeholder);
}

}  // namespace

std::optional<std::string> media_in(const Json& row, bool text_is_named) {
  if (!row.is_object()) return std::nullopt;
  for (const auto& [column, value] : row.items()) {
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

bool is_media_block(std::string_view type) {
  if (type.starts_with("input_")) type.remove_prefix(6);
  if (type.ends_with("_url")) type.remove_suffix(4);
  return type == "image" || type == "video" || type == "audio";
}

void refuse_media(const std::string& what) {
  throw DataError(tr("{}: {}", what, kNoMultimodal),
                  tr("to use the text alone, take such columns and their placeholders out of the "
                     "rows, or name the text column with --json-keys"));
}

}  // namespace danlu::data
