#include "data/preprocess_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "base/ignore_label.h"
#include "base/progress.h"
#include "data/formats/row.h"

namespace danlu::data {
namespace {

constexpr size_t kMaxShownTokens = 2048;
constexpr int64_t kSmallestBin = 64;

Json reasons_to_json(const std::vector<ReasonCount>& reasons) {
  Json list = Json::array();
  for (const ReasonCount& item : reasons) {
    list.push_back({{"reason", item.reason}, {"count", item.count}, {"examples", item.examples}});
  }
  return list;
}

/// object[key], which must be there and of type T.
template <typename T>
T member(const Json& object, const char* key) {
  if (!object.is_object()) throw DataError(tr("no object that could hold \"{}\"", key));
  const auto value = json_get<T>(object, key);
  if (!value) throw DataError(tr("\"{}\" is missing", key));
  return *value;
}

Json list_member(const Json& object, const char* key) {
  Json list = member<Json>(object, key);
  if (!list.is_array()) throw_wrong_type(key, "a list", list);
  return list;
}

std::vector<std::string> strings_member(const Json& object, const char* key) {
  std::vector<std::string> strings;
  for (const Json& item : list_member(object, key)) {
    if (!item.is_string()) throw_wrong_type(key, "a list of strings", item);
    strings.push_back(item);
  }
  return strings;
}

std::vector<ReasonCount> reasons_member(const Json& object, const char* key) {
  std::vector<ReasonCount> reasons;
  for (const Json& item : list_member(object, key)) {
    reasons.push_back({member<std::string>(item, "reason"), member<int64_t>(item, "count"),
                       strings_member(item, "examples")});
  }
  return reasons;
}

/// Earlier versions did not write them.
std::vector<ColumnCounts> counts_member(const Json& object, const char* key) {
  std::vector<ColumnCounts> counts;
  if (!object.contains(key)) return counts;
  for (const Json& item : list_member(object, key)) {
    counts.emplace_back();
    if (!item.is_object()) throw_wrong_type(key, "a list of objects", item);
    for (const auto& [column, rows] : item.items()) {
      if (!rows.is_number_integer()) throw_wrong_type(key, "a number of rows", rows);
      counts.back()[column] = rows.get<int64_t>();
    }
  }
  return counts;
}

std::string reasons_text(const char* title, const std::vector<ReasonCount>& reasons) {
  std::string text;
  for (const ReasonCount& item : reasons) {
    text += fmt::format("{:<10}{} {}: {}\n", title, format_count(item.count),
                        item.count == 1 ? "row" : "rows", item.reason);
    for (const std::string& example : item.examples) text += "            " + example + "\n";
    if (item.count > static_cast<int64_t>(item.examples.size()) && !item.examples.empty()) {
      text += "            …\n";
    }
  }
  return text;
}

void add_reasons(std::vector<ReasonCount>* reasons, const std::vector<ReasonCount>& others) {
  for (const ReasonCount& other : others) {
    const auto known = std::find_if(reasons->begin(), reasons->end(),
                                    [&](const auto& one) { return one.reason == other.reason; });
    if (known == reasons->end()) {
      reasons->push_back(other);
      continue;
    }
    known->count += other.count;
    for (const std::string& example : other.examples) {
      if (known->examples.size() < kMaxReasonExamples) known->examples.push_back(example);
    }
  }
}

Json stats_to_json(const LengthStats& stats) {
  return {{"count", stats.count},
          {"sum", stats.sum},
          {"min", stats.min},
          {"max", stats.max},
          {"sum_of_squares", stats.sum_of_squares}};
}

/// Size, time of change, and whether it may be read.
std::string state_of_file(const std::string& path) {
  std::error_code missing;
  const auto size = std::filesystem::file_size(path, missing);
  if (missing) return "";
  const auto time = std::filesystem::last_write_time(path, missing).time_since_epoch().count();
  return fmt::format("{} {} {}", size, time, ::access(path.c_str(), R_OK) == 0);
}

LengthStats stats_member(const Json& object, const char* key) {
  const Json stats = member<Json>(object, key);
  return {member<int64_t>(stats, "count"), member<int64_t>(stats, "sum"),
          member<int64_t>(stats, "min"), member<int64_t>(stats, "max"),
          member<double>(stats, "sum_of_squares")};
}

/// Absent where no sample has pictures, and in what earlier versions wrote.
VisualCounts visual_member(const Json& object, const char* key) {
  VisualCounts counts;
  if (!object.contains(key)) return counts;
  const Json json = member<Json>(object, key);
  counts.pictures = member<int64_t>(json, "pictures");
  counts.videos = member<int64_t>(json, "videos");
  counts.tokens = stats_member(json, "tokens");
  for (const Json& samples : list_member(json, "histogram")) {
    if (!samples.is_number_integer()) throw_wrong_type("histogram", "a list of numbers", samples);
    counts.histogram.push_back(samples.get<int64_t>());
  }
  return counts;
}

double share(int64_t part, int64_t whole) {
  return whole <= 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

std::string decode(const text::Tokenizer* tokenizer, std::span<const int32_t> ids) {
  if (tokenizer) return tokenizer->decode(ids);
  return fmt::format("{}", fmt::join(ids, " "));
}

}  // namespace

void LengthStats::add(int64_t length) {
  min = count == 0 ? length : std::min(min, length);
  max = std::max(max, length);
  ++count;
  sum += length;
  sum_of_squares += static_cast<double>(length) * static_cast<double>(length);
}

void LengthStats::add(const LengthStats& other) {
  if (other.count == 0) return;
  min = count == 0 ? other.min : std::min(min, other.min);
  max = std::max(max, other.max);
  count += other.count;
  sum += other.sum;
  sum_of_squares += other.sum_of_squares;
}

double LengthStats::mean() const {
  return count == 0 ? 0 : static_cast<double>(sum) / static_cast<double>(count);
}

double LengthStats::deviation() const {
  if (count == 0) return 0;
  const double variance = sum_of_squares / static_cast<double>(count) - mean() * mean();
  return std::sqrt(std::max(0.0, variance));
}

void VisualCounts::add(const std::vector<MediaSpan>& spans) {
  if (spans.empty()) return;
  int64_t sum = 0;
  for (const MediaSpan& span : spans) {
    ++(span.kind == text::MediaKind::kImage ? pictures : videos);
    sum += span.count;
  }
  tokens.add(sum);
  size_t bin = 0;
  while (sum > kSmallestBin << bin) ++bin;
  histogram.resize(std::max(histogram.size(), bin + 1));
  ++histogram[bin];
}

void VisualCounts::add(const VisualCounts& other) {
  pictures += other.pictures;
  videos += other.videos;
  tokens.add(other.tokens);
  histogram.resize(std::max(histogram.size(), other.histogram.size()));
  for (size_t i = 0; i < other.histogram.size(); ++i) histogram[i] += other.histogram[i];
}

std::string VisualCounts::histogram_text() const {
  std::string text;
  for (size_t i = 0; i < histogram.size(); ++i) {
    if (histogram[i] == 0) continue;
    text += fmt::format("{}≤ {}: {}", text.empty() ? "" : ", ", kSmallestBin << i,
                        format_count(static_cast<uint64_t>(histogram[i])));
  }
  return text;
}

void LostMedia::add(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    if (states_.size() >= kMost) return;
    states_.try_emplace(path, state_of_file(path));
  }
}

void LostMedia::add(const LostMedia& other) {
  for (const auto& state : other.states_) {
    if (states_.size() >= kMost) return;
    states_.insert(state);
  }
}

bool LostMedia::is_as_it_was() const {
  return std::all_of(states_.begin(), states_.end(),
                     [](const auto& one) { return state_of_file(one.first) == one.second; });
}

LostMedia LostMedia::from_json(const Json& json) {
  LostMedia lost;
  if (!json.is_object()) throw_wrong_type("lost_media", "an object", json);
  for (const auto& [path, state] : json.items()) {
    if (!state.is_string()) throw_wrong_type(path, "a string", state);
    lost.states_[path] = state.get<std::string>();
  }
  return lost;
}

int64_t PreprocessReport::rows_dropped_for(const std::string& reason) const {
  int64_t count = 0;
  for (const ReasonCount& item : dropped) count += item.reason == reason ? item.count : 0;
  return count;
}

void PreprocessReport::add(const PreprocessReport& other) {
  datasets.insert(datasets.end(), other.datasets.begin(), other.datasets.end());
  unread_columns.insert(unread_columns.end(), other.unread_columns.begin(),
                        other.unread_columns.end());
  rows_read += other.rows_read;
  rows_kept += other.rows_kept;
  add_reasons(&dropped, other.dropped);
  add_reasons(&truncated, other.truncated);
  lengths.add(other.lengths);
  visual.add(other.visual);
  lost_media.add(other.lost_media);
  target_tokens += other.target_tokens;
  packed_sequences += other.packed_sequences;
  padding_tokens += other.padding_tokens;
  dropped_ratio = std::max(dropped_ratio, other.dropped_ratio);
  if (sample.empty()) sample = other.sample;
}

Json PreprocessReport::to_json() const {
  Json json{{"datasets", datasets},
            {"rows_read", rows_read},
            {"rows_kept", rows_kept},
            {"dropped", reasons_to_json(dropped)},
            {"truncated", reasons_to_json(truncated)},
            {"unread_columns", unread_columns},
            {"lengths", stats_to_json(lengths)},
            {"target_tokens", target_tokens},
            {"packed_sequences", packed_sequences},
            {"padding_tokens", padding_tokens},
            {"dropped_ratio", dropped_ratio},
            {"sample", sample}};
  if (!visual.empty()) {
    json["visual"] = {{"pictures", visual.pictures},
                      {"videos", visual.videos},
                      {"tokens", stats_to_json(visual.tokens)},
                      {"histogram", visual.histogram}};
  }
  if (!lost_media.empty()) json["lost_media"] = lost_media.to_json();
  return json;
}

PreprocessReport PreprocessReport::from_json(const Json& json) {
  PreprocessReport report;
  report.datasets = strings_member(json, "datasets");
  report.rows_read = member<int64_t>(json, "rows_read");
  report.rows_kept = member<int64_t>(json, "rows_kept");
  report.dropped = reasons_member(json, "dropped");
  report.truncated = reasons_member(json, "truncated");
  report.unread_columns = counts_member(json, "unread_columns");
  report.lengths = stats_member(json, "lengths");
  report.visual = visual_member(json, "visual");
  if (json.contains("lost_media")) report.lost_media = LostMedia::from_json(json["lost_media"]);
  report.target_tokens = member<int64_t>(json, "target_tokens");
  report.packed_sequences = member<int64_t>(json, "packed_sequences");
  report.padding_tokens = member<int64_t>(json, "padding_tokens");
  report.sample = member<std::string>(json, "sample");
  // Earlier versions did not write it: the share over all data sets stands for the largest.
  report.dropped_ratio = json_get<double>(json, "dropped_ratio")
                             .value_or(share(report.rows_dropped(), report.rows_read));
  return report;
}

std::string reasons_of_error(const std::vector<ReasonCount>& dropped) {
  std::string text;
  for (const ReasonCount& item : dropped) {
    const std::string reason = translated_filled(item.reason);
    text += "\n  " +
            (item.count == 1 ? tr("1 row: {}", reason) : tr("{} rows: {}", item.count, reason));
    for (const std::string& example : item.examples) text += "\n    " + translated_filled(example);
  }
  return text;
}

std::string hint_about(const std::vector<ReasonCount>& dropped) {
  const auto all_are = [&](const char* beginning) {
    return !dropped.empty() &&
           std::all_of(dropped.begin(), dropped.end(),
                       [&](const ReasonCount& item) { return item.reason.starts_with(beginning); });
  };
  if (all_are("longer than"))
    return tr(
        "raise --max-length; in training, --truncation right cuts long samples, and left "
        "prompts that are answered");
  if (all_are("missing file")) return tr("--media_dir says where relative paths of pictures begin");
  return tr("check the detected layout; --handler-name, --map-keys or --columns change it");
}

void judge_dropped(PreprocessReport* of_one, double max_dropped_ratio) {
  int64_t rows = of_one->rows_read;
  std::vector<ReasonCount> lost = of_one->dropped;
  std::erase_if(lost, [&](const ReasonCount& item) {
    const bool is_blank = item.reason == kBlankLine;
    if (is_blank) rows -= item.count;
    return is_blank;
  });
  const int64_t dropped = rows - of_one->rows_kept;
  of_one->dropped_ratio = share(dropped, rows);
  if (of_one->dropped_ratio <= max_dropped_ratio) return;
  const std::string hint = hint_about(lost);
  std::string name;
  for (const std::string& dataset : of_one->datasets)
    name += (name.empty() ? "" : ", ") + translated_filled(dataset);
  if (of_one->rows_kept == 0) {
    throw DataError(
        tr("[dataset] {}: no usable row among {}{}", name, rows, reasons_of_error(lost)), hint);
  }
  throw DataError(tr("[dataset] {}: {} of {} rows would be dropped, more than the share of {} that "
                     "--max_dropped_ratio allows{}",
                     name, dropped, rows, max_dropped_ratio, reasons_of_error(lost)),
                  tr("{}; if the others are all you want, --max_dropped_ratio 1", hint));
}

std::string PreprocessReport::rows_text() const {
  std::string text;
  for (const std::string& dataset : datasets)
    text += fmt::format("{:<10}{}\n", "data set", dataset);
  text += fmt::format("{:<10}{} read, {} kept, {} dropped\n", "rows", format_count(rows_read),
                      format_count(rows_kept), format_count(rows_dropped()));
  text += reasons_text("dropped", dropped);
  return text + reasons_text("truncated", truncated);
}

std::string PreprocessReport::text() const {
  std::string text = rows_text();
  text += fmt::format("{:<10}{}", "tokens", format_count(lengths.sum));
  if (target_tokens > 0) {
    text += tr(", {} with loss ({:.1f} %)", format_count(target_tokens),
               100.0 * static_cast<double>(target_tokens) /
                   static_cast<double>(std::max<int64_t>(1, lengths.sum)));
  }
  text += fmt::format("\n{:<10}{:.1f} ± {:.1f} tokens, min {}, max {}, {} samples\n", "length",
                      lengths.mean(), lengths.deviation(), lengths.min, lengths.max,
                      format_count(lengths.count));
  if (!visual.empty()) {
    text +=
        fmt::format("{:<10}{} pictures, {} videos in {} samples; {} tokens, {:.1f} a sample\n",
                    "visual", format_count(static_cast<uint64_t>(visual.pictures)),
                    format_count(static_cast<uint64_t>(visual.videos)),
                    format_count(static_cast<uint64_t>(visual.tokens.count)),
                    format_count(static_cast<uint64_t>(visual.tokens.sum)), visual.tokens.mean());
    text += fmt::format("{:<10}samples by visual tokens: {}\n", "", visual.histogram_text());
  }
  if (packed_sequences > 0) {
    text += fmt::format(
        "{:<10}{} sequences, {:.2f} % padding\n", "packed", format_count(packed_sequences),
        100.0 * static_cast<double>(padding_tokens) /
            static_cast<double>(std::max<int64_t>(1, padding_tokens + lengths.sum)));
  }
  if (!sample.empty()) text += sample;
  return text;
}

std::string describe_media(const std::vector<MediaSpan>& media) {
  std::string text;
  int pictures = 0, videos = 0;
  for (const MediaSpan& span : media) {
    const bool is_picture = span.kind == text::MediaKind::kImage;
    std::string from = span.files.empty() ? "" : span.files[0].path;
    if (span.is_frame_list) from += fmt::format(" and {} more frames", span.files.size() - 1);
    text += fmt::format(
        "[{} {}] {}: grid {} x {} x {}, {} tokens at {}{}\n", is_picture ? "PICTURE" : "VIDEO",
        is_picture ? ++pictures : ++videos, from, span.grid.t, span.grid.h, span.grid.w, span.count,
        span.begin, is_picture ? "" : fmt::format(", {:g} s a step of time", span.second_per_grid));
  }
  return text;
}

std::string decode_with_media(const text::Tokenizer* tokenizer, std::span<const int32_t> ids,
                              const std::vector<MediaSpan>& media) {
  std::string text;
  const auto part = [&](int64_t begin, int64_t count) {
    return decode(tokenizer, ids.subspan(static_cast<size_t>(begin), static_cast<size_t>(count)));
  };
  each_part(
      std::ssize(ids), media, [&](int64_t begin, int64_t end) { text += part(begin, end - begin); },
      [&](int64_t begin, int64_t count) {
        text += fmt::format("[{} * {}]", part(begin, 1), count);
      });
  return text;
}

std::string describe_sample(const text::Tokenizer* tokenizer, std::span<const int32_t> ids,
                            std::span<const int32_t> labels, const std::vector<MediaSpan>& media) {
  size_t visual = 0;
  for (const MediaSpan& span : media) visual += static_cast<size_t>(span.count);
  const size_t shown = std::min(ids.size(), kMaxShownTokens + visual);
  std::string text = "[INPUT]  " + decode_with_media(tokenizer, ids.first(shown), media);
  if (shown < ids.size()) text += tr(" … ({} more tokens)", ids.size() - shown);
  text += "\n";
  text += describe_media(media);
  if (labels.empty()) return text;
  text += "[LABELS] ";
  for (size_t i = 0; i < shown;) {
    size_t end = i;
    const bool masked = labels[i] == kIgnoreLabel;
    while (end < shown && (labels[end] == kIgnoreLabel) == masked) ++end;
    text += masked ? fmt::format("[-100 * {}]", end - i)
                   : decode(tokenizer, labels.subspan(i, end - i));
    i = end;
  }
  return text + "\n";
}

}  // namespace danlu::data
