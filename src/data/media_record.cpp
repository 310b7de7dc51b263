#include "data/media_record.h"

#include <cstring>

#include "base/error.h"
#include "base/json.h"
#include "base/json_text.h"

namespace danlu::data {
namespace {

constexpr const char *kImage = "image", *kVideo = "video";

/// Bytes after one another, each run padded to whole numbers.
class RecordBytes {
 public:
  void append(std::string_view bytes) {
    const size_t before = numbers.size();
    numbers.resize(before + (bytes.size() + 3) / 4);
    std::memcpy(numbers.data() + before, bytes.data(), bytes.size());
  }
  std::vector<int32_t> numbers;
};

Json span_json(const MediaSpan& span) {
  Json json{{"kind", span.kind == text::MediaKind::kImage ? kImage : kVideo},
            {"grid", {span.grid.t, span.grid.h, span.grid.w}},
            {"begin", span.begin},
            {"count", span.count},
            {"row", span.row}};
  if (span.second_per_grid != 0) json["second_per_grid"] = span.second_per_grid;
  if (span.is_frame_list) json["frame_list"] = true;
  for (const MediaFile& file : span.files) {
    Json entry{{"path", file.path}};
    if (file.bytes) entry["bytes"] = file.bytes->size();
    json["files"].push_back(std::move(entry));
  }
  return json;
}

/// Reads runs of bytes in the order in which they were appended.
class RecordReader {
 public:
  explicit RecordReader(std::span<const int32_t> numbers) : numbers_(numbers) {}

  std::string take(uint64_t size) {
    const uint64_t words = size / 4 + (size % 4 != 0);
    if (words > numbers_.size()) throw DataError(tr("it ends too early"));
    std::string bytes(size, '\0');
    std::memcpy(bytes.data(), numbers_.data(), size);
    numbers_ = numbers_.subspan(words);
    return bytes;
  }

 private:
  std::span<const int32_t> numbers_;
};

template <typename T>
T required(const Json& json, const char* key) {
  const auto value = json_get<T>(json, key);
  if (!value) throw DataError(tr("\"{}\" is missing", key));
  return *value;
}

MediaSpan read_head(const Json& json) {
  MediaSpan span;
  span.kind = required<std::string>(json, "kind") == kImage ? text::MediaKind::kImage
                                                            : text::MediaKind::kVideo;
  const Json grid = required<Json>(json, "grid");
  if (!grid.is_array() || grid.size() != 3) throw DataError(tr("\"{}\" is missing", "grid"));
  span.grid = {grid[0].get<int64_t>(), grid[1].get<int64_t>(), grid[2].get<int64_t>()};
  span.begin = required<int64_t>(json, "begin");
  span.count = required<int64_t>(json, "count");
  span.row = required<std::string>(json, "row");
  span.second_per_grid = json_get<double>(json, "second_per_grid").value_or(0);
  span.is_frame_list = json_get<bool>(json, "frame_list").value_or(false);
  return span;
}

MediaSpan read_span(const Json& json, RecordReader& bytes) {
  MediaSpan span = read_head(json);
  for (const Json& file : required<Json>(json, "files")) {
    span.files.push_back({required<std::string>(file, "path")});
    if (const auto size = json_get<uint64_t>(file, "bytes"))
      span.files.back().bytes = std::make_shared<const std::string>(bytes.take(*size));
  }
  return span;
}

/// read_one(entry of the list in the record's text, what comes after the text) for each.
template <typename ReadOne>
void read_record(std::span<const int32_t> record, const std::string& origin,
                 const ReadOne& read_one) {
  if (record.empty()) return;
  const auto damaged = [&](const std::string& why) {
    throw DataError(tr("{}: damaged record of pictures: {}", origin, why),
                    tr("make the tokens again: --overwrite_cache"));
  };
  try {
    RecordReader reader(record.subspan(1));
    const auto list = try_parse_json(reader.take(static_cast<uint32_t>(record[0])));
    if (!list || !list->is_array()) throw DataError(tr("it is no list"));
    for (const Json& json : *list) read_one(json, reader);
  } catch (const Json::exception& error) {
    damaged(error.what());
  } catch (const DataError& error) {
    damaged(error.what());
  }
}

}  // namespace

std::vector<int32_t> media_record(const std::vector<MediaSpan>& spans) {
  if (spans.empty()) return {};
  Json list = Json::array();
  for (const MediaSpan& span : spans) list.push_back(span_json(span));
  const std::string text = dump_text(list);
  RecordBytes record;
  record.numbers.push_back(static_cast<int32_t>(text.size()));
  record.append(text);
  for (const MediaSpan& span : spans) {
    for (const MediaFile& file : span.files) {
      if (file.bytes) record.append(*file.bytes);
    }
  }
  return std::move(record.numbers);
}

std::vector<MediaSpan> read_media_record(std::span<const int32_t> record,
                                         const std::string& origin) {
  std::vector<MediaSpan> spans;
  read_record(record, origin, [&](const Json& json, RecordReader& reader) {
    spans.push_back(read_span(json, reader));
  });
  return spans;
}

std::vector<MediaSpan> read_media_heads(std::span<const int32_t> record,
                                        const std::string& origin) {
  std::vector<MediaSpan> spans;
  read_record(record, origin,
              [&](const Json& json, RecordReader&) { spans.push_back(read_head(json)); });
  return spans;
}

}  // namespace danlu::data
