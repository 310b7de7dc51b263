#include "data/formats/media_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "data/formats/columns.h"
#include "text/base64.h"

namespace danlu::data {
namespace {

using text::MediaKind;
using text::MediaPiece;
using text::MediaReference;

constexpr const char* kBadValue = "a picture or video is named in no known way";

bool refuse_value(const std::string& detail, RowProblem* problem) {
  *problem = {kBadValue, detail};
  return false;
}

std::shared_ptr<const std::string> shared(std::string bytes) {
  return std::make_shared<const std::string>(std::move(bytes));
}

/// Base64 of the first bytes of JPEG, PNG, GIF and WebP. No path has so many characters without a
/// dot and begins so.
bool is_raw_base64(std::string_view text) {
  constexpr size_t kShortest = 64;
  constexpr std::array<std::string_view, 4> kBeginnings{"/9j/", "iVBORw0KGgo", "R0lGOD", "UklGR"};
  return text.size() >= kShortest && text.find('.') == text.npos &&
         std::ranges::any_of(kBeginnings, [&](auto begin) { return text.starts_with(begin); });
}

/// A column of bytes, as unescaped_blob has it: the beginnings of JPEG, PNG, GIF and WebP.
bool is_escaped_blob(std::string_view text) {
  if (text.starts_with(R"(\xFF\xD8\xFF)") || text.starts_with(R"(\x89PNG\x0D\x0A)")) return true;
  return (text.starts_with("GIF8") || text.starts_with("RIFF")) &&
         text.find(R"(\x00)") != text.npos;
}

/// Tables write bytes as text: printable ones as they are, others as \xHH (DuckDB's cast of BLOB).
std::string unescaped_blob(std::string_view text) {
  const auto digit = [](char c) { return c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10; };
  std::string bytes;
  bytes.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size() && text[i + 1] == 'x') {
      bytes += static_cast<char>(digit(text[i + 2]) << 4 | digit(text[i + 3]));
      i += 3;
    } else {
      bytes += text[i];
    }
  }
  return bytes;
}

/// data:image/png;base64,…
bool read_data_url(std::string_view url, MediaPiece* piece, RowProblem* problem) {
  const size_t comma = url.find(',');
  const std::string_view head = url.substr(0, std::min(comma, url.size()));
  if (comma == url.npos || !head.ends_with(";base64"))
    return refuse_value("a data: URL that is not base64", problem);
  std::string bytes;
  if (!text::decode_base64(url.substr(comma + 1), &bytes))
    return refuse_value("a data: URL whose base64 is damaged", problem);
  piece->name = head;
  piece->bytes = shared(std::move(bytes));
  return true;
}

std::string decoded_uri(std::string_view path) {
  const auto is_hex = [](char c) {
    return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f');
  };
  const auto digit = [](char c) { return c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10; };
  std::string out;
  for (size_t i = 0; i < path.size(); ++i) {
    if (path[i] == '%' && i + 2 < path.size() && is_hex(path[i + 1]) && is_hex(path[i + 2])) {
      out += static_cast<char>(digit(path[i + 1]) << 4 | digit(path[i + 2]));
      i += 2;
    } else {
      out += path[i];
    }
  }
  return out;
}

bool read_text(const std::string& text, MediaPiece* piece, RowProblem* problem) {
  constexpr std::string_view kFile = "file://", kData = "data:";
  if (text.empty()) return refuse_value("an empty name", problem);
  if (text.starts_with(kData)) return read_data_url(text, piece, problem);
  if (is_raw_base64(text)) {
    std::string bytes;
    if (!text::decode_base64(text, &bytes)) return refuse_value("base64 that is damaged", problem);
    piece->name = "base64";
    piece->bytes = shared(std::move(bytes));
    return true;
  }
  if (is_escaped_blob(text)) {
    piece->name = "bytes";
    piece->bytes = shared(unescaped_blob(text));
    return true;
  }
  constexpr size_t kLongestPath = 4096;  // of the system's, with its end
  if (text.size() >= kLongestPath)
    return refuse_value(fmt::format("a name of {} characters", text.size()), problem);
  piece->name =
      text.starts_with(kFile) ? decoded_uri(std::string_view(text).substr(kFile.size())) : text;
  if (piece->name.find('\0') != std::string::npos)
    return refuse_value("a name with a zero byte", problem);
  return true;
}

/// {"bytes": …, "path": …}; bytes win.
bool read_bytes(const std::string& text, const std::string& name, MediaPiece* piece,
                RowProblem* problem) {
  std::string bytes;
  if (text.starts_with("data:")) return read_data_url(text, piece, problem);
  if (!is_raw_base64(text)) {
    bytes = unescaped_blob(text);
  } else if (!text::decode_base64(text, &bytes)) {
    return refuse_value("base64 that is damaged", problem);
  }
  piece->name = name.empty() ? "bytes" : name;
  piece->bytes = shared(std::move(bytes));
  return true;
}

bool is_nothing(const Json& value) {
  if (value.is_null()) return true;
  if (value.is_string()) return value.get_ref<const std::string&>().empty();
  return value.is_structured() && std::all_of(value.begin(), value.end(), is_nothing);
}

bool read_piece(const Json& value, MediaPiece* piece, RowProblem* problem) {
  if (value.is_string()) return read_text(value.get_ref<const std::string&>(), piece, problem);
  if (!value.is_object()) return refuse_value("got " + kind_of(value), problem);
  const Json* path = find_value(value, "path");
  const std::string name = path && path->is_string() ? path->get<std::string>() : "";
  if (const Json* bytes = find_value(value, "bytes"); bytes && bytes->is_string())
    return read_bytes(bytes->get_ref<const std::string&>(), name, piece, problem);
  if (!name.empty()) return read_text(name, piece, problem);
  for (const char* key : {"url", "image", "image_url", "base64", "video", "video_url"}) {
    if (const Json* inner = find_value(value, key); inner && inner->is_string())
      return read_text(inner->get_ref<const std::string&>(), piece, problem);
  }
  return refuse_value("an object without path, bytes or url", problem);
}

/// "image" of "image_url" and "input_image".
std::string_view bare_type(std::string_view type) {
  if (type.starts_with("input_")) type.remove_prefix(6);
  if (type.ends_with("_url")) type.remove_suffix(4);
  return type;
}

/// Refuses settings of a single picture, which qwen_vl_utils reads from a part. Danlu has none of
/// them.
bool refuse_own_limits(const Json& part, RowProblem* problem) {
  for (const char* key :
       {"min_pixels", "max_pixels", "resized_height", "resized_width", "total_pixels", "nframes",
        "min_frames", "max_frames", "video_start", "video_end"}) {
    if (!find_value(part, key)) continue;
    *problem = {"a picture or video with limits of its own",
                fmt::format("\"{}\" holds for all rows: give it as a flag", key)};
    return true;
  }
  return false;
}

/// The rate of a list of frames is `sample_fps` in qwen_vl_utils; `fps` asks for one of a file, and
/// of lists was the older name.
bool read_rate(const Json& part, MediaReference* media, RowProblem* problem) {
  for (const char* key : {"fps", "sample_fps"}) {
    const Json* rate = find_value(part, key);
    if (!rate || !rate->is_number()) continue;
    media->fps = rate->get<double>();
    if (!(*media->fps > 0)) return refuse_value("fps must be above 0", problem);
  }
  if (!find_value(part, "raw_fps") || find_value(part, "sample_fps")) return true;
  *problem = {"a picture or video with limits of its own",
              "\"raw_fps\" without \"sample_fps\", the rate of the frames that are there"};
  return false;
}

}  // namespace

bool read_media_value(const Json& value, MediaKind kind, MediaReference* media,
                      RowProblem* problem) {
  media->kind = kind;
  if (!value.is_array()) return read_piece(value, &media->pieces.emplace_back(), problem);
  if (kind == MediaKind::kImage) return refuse_value("a list where one picture belongs", problem);
  media->is_frame_list = true;
  if (value.empty()) return refuse_value("a video without frames", problem);
  for (const Json& frame : value) {
    if (!read_piece(frame, &media->pieces.emplace_back(), problem)) return false;
  }
  return true;
}

bool read_media_column(const Json& value, const std::string& column, MediaKind kind,
                       std::vector<MediaReference>* all, RowProblem* problem) {
  if (is_nothing(value)) return true;
  Json parsed;
  const Json* list = &value;
  if (value.is_string() && value.get_ref<const std::string&>().starts_with('[')) {
    auto read = parse_if_text(value);
    if (!read || !read->is_array()) {
      *problem = wrong_type(column, "a list", value);
      return false;
    }
    parsed = std::move(*read);
    list = &parsed;
  }
  if (!list->is_array()) return read_media_value(*list, kind, &all->emplace_back(), problem);
  for (const Json& item : *list) {
    if (is_nothing(item)) continue;
    if (!read_media_value(item, kind, &all->emplace_back(), problem)) return false;
  }
  return true;
}

bool read_media_part(const Json& part, MediaReference* media, RowProblem* problem) {
  const auto type = part.find("type");
  std::string_view kind;
  if (type != part.end() && type->is_string()) {
    kind = bare_type(type->get_ref<const std::string&>());
  } else {
    kind = part.contains("video") ? "video" : "image";
  }
  media->kind = kind == "video" ? MediaKind::kVideo : MediaKind::kImage;
  if (refuse_own_limits(part, problem)) return false;
  if (!read_rate(part, media, problem)) return false;
  const std::string name(kind), url = name + "_url";
  for (const std::string& key :
       {name, url, std::string("url"), std::string("path"), std::string("base64")}) {
    const Json* value = find_value(part, key);
    if (!value || is_nothing(*value)) continue;
    return read_media_value(*value, media->kind, media, problem);
  }
  return true;
}

}  // namespace danlu::data
