#include "board/run_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <string_view>

#include "base/json_text.h"
#include "board/line_follower.h"
#include "board/metrics.h"

namespace danlu::board {
namespace {

constexpr size_t kLargestSettings = size_t{4} << 20;
constexpr size_t kMostCheckpoints = 1000, kMostLogs = 64;
constexpr size_t kSamplesAtOnce = size_t{8} << 20;

Json object_in(const std::filesystem::path& file) {
  const auto stamp = stamp_of(file);
  if (!stamp || stamp->size_bytes > kLargestSettings) return Json::object();
  const auto object = try_parse_json(read_part(file, 0, kLargestSettings).value_or(""));
  return object && object->is_object() ? *object : Json::object();
}

/// config.yaml holds one "key: value" a line, and the command in a comment before them.
void read_given(const std::filesystem::path& file, Json& settings) {
  const std::string text = read_part(file, 0, kLargestSettings).value_or("");
  Json given = Json::array();
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    if (line.starts_with("# danlu ")) {
      settings["verb"] = line.substr(8, line.find(' ', 8) - 8);
    } else if (const size_t colon = line.find(':'); colon != line.npos && line[0] != '#') {
      given.push_back(line.substr(0, colon));
    }
  }
  settings["given"] = given;
}

std::optional<int64_t> number_behind(std::string_view name, std::string_view before,
                                     std::string_view behind = "") {
  if (!name.starts_with(before) || !name.ends_with(behind)) return std::nullopt;
  if (name.size() <= before.size() + behind.size()) return std::nullopt;
  name = name.substr(before.size(), name.size() - before.size() - behind.size());
  int64_t number = 0;
  const auto [at, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error != std::errc() || at != name.data() + name.size()) return std::nullopt;
  return number;
}

std::string target_of_link(const std::filesystem::path& link) {
  std::error_code error;
  const std::filesystem::path target = std::filesystem::read_symlink(link, error);
  return error ? "" : target.filename().string();
}

uint64_t bytes_in(const Json& done) {
  const auto files = done.find("files");
  uint64_t sum = 0;
  if (files == done.end() || !files->is_object()) return 0;
  for (const auto& item : files->items()) {
    if (item.value().is_number_unsigned()) sum += item.value().get<uint64_t>();
  }
  return sum;
}

std::vector<std::filesystem::directory_entry> entries_of(const std::filesystem::path& directory) {
  std::vector<std::filesystem::directory_entry> entries;
  std::error_code error;
  for (auto it = std::filesystem::directory_iterator(directory, error);
       !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
    entries.push_back(*it);
    if (entries.size() >= 100'000) break;
  }
  return entries;
}

int64_t changed_ms(const std::filesystem::path& path) {
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0) return 0;
  return int64_t{status.st_mtim.tv_sec} * 1000 + status.st_mtim.tv_nsec / 1'000'000;
}

}  // namespace

bool is_run(const std::filesystem::path& directory) {
  if (stamp_of(directory / "logging.jsonl")) return true;
  return stamp_of(directory / "train.log") &&
         (stamp_of(directory / "args.json") || stamp_of(directory / "sft_args.json"));
}

Json settings_of(const std::filesystem::path& run) {
  Json settings = {{"args", object_in(run / "args.json")}, {"given", Json::array()}, {"verb", ""}};
  if (settings["args"].empty()) settings["args"] = object_in(run / "sft_args.json");
  read_given(run / "config.yaml", settings);
  return settings;
}

Json checkpoints_of(const std::filesystem::path& run) {
  const std::string best = target_of_link(run / "best"), last = target_of_link(run / "last");
  std::map<int64_t, Json> by_step;
  for (const auto& entry : entries_of(run)) {
    const std::string name = entry.path().filename().string();
    const auto step = number_behind(name, "checkpoint-");
    std::error_code error;
    if (!step || !std::filesystem::is_directory(entry.symlink_status(error))) continue;
    const bool complete = stamp_of(entry.path() / "DONE").has_value();
    const Json done = complete ? object_in(entry.path() / "DONE") : Json::object();
    const auto resumable = done.find("resumable");
    by_step[*step] = {
        {"name", name},
        {"step", *step},
        {"complete", complete},
        {"resumable", resumable != done.end() && resumable->is_boolean() && resumable->get<bool>()},
        {"bytes", bytes_in(done)},
        {"changed", changed_ms(entry.path())},
        {"best", name == best},
        {"last", name == last}};
  }
  Json list = Json::array();
  for (const auto& [step, checkpoint] : by_step) {
    if (list.size() >= kMostCheckpoints) break;
    list.push_back(checkpoint);
  }
  return list;
}

Json results_of(const std::filesystem::path& run) {
  Json results = Json::object();
  for (const char* name : {"all_results", "memory"}) {
    Json object = object_in(run / (std::string(name) + ".json"));
    if (!object.empty()) results[name] = std::move(object);
  }
  return results;
}

std::vector<std::string> log_names(const std::filesystem::path& run) {
  std::vector<std::string> names;
  if (stamp_of(run / "train.log")) names.emplace_back("train.log");
  std::map<int64_t, std::string> of_ranks;
  for (const auto& entry : entries_of(run)) {
    const std::string name = entry.path().filename().string();
    if (const auto rank = number_behind(name, "rank-", ".log"); rank && stamp_of(entry.path()))
      of_ranks[*rank] = name;
  }
  for (const auto& [rank, name] : of_ranks) {
    if (names.size() < kMostLogs) names.push_back(name);
  }
  return names;
}

std::optional<Json> log_tail(const std::filesystem::path& run, const std::string& name,
                             size_t most_bytes) {
  const std::vector<std::string> names = log_names(run);
  if (std::find(names.begin(), names.end(), name) == names.end()) return std::nullopt;
  const auto stamp = stamp_of(run / name);
  if (!stamp) return std::nullopt;
  const uint64_t from = stamp->size_bytes > most_bytes ? stamp->size_bytes - most_bytes : 0;
  std::string text = read_part(run / name, from, most_bytes).value_or("");
  // A line that was cut would be taken for one.
  if (const size_t end = text.find('\n'); from > 0 && end != text.npos) text.erase(0, end + 1);
  return Json{{"name", name}, {"text", text}, {"cut", from > 0}};
}

Json samples_of(const std::filesystem::path& run, uint64_t before, size_t count) {
  const std::filesystem::path file = run / "samples.jsonl";
  Json samples = Json::array();
  const auto stamp = stamp_of(file);
  if (!stamp) return {{"samples", samples}, {"before", 0}};
  const uint64_t end = before == 0 || before > stamp->size_bytes ? stamp->size_bytes : before;
  const uint64_t from = end > kSamplesAtOnce ? end - kSamplesAtOnce : 0;
  const std::string text = read_part(file, from, static_cast<size_t>(end - from)).value_or("");
  // Whole lines alone, from the last one back.
  size_t behind = text.rfind('\n');
  while (behind != text.npos && samples.size() < count) {
    const size_t begin = behind == 0 ? text.npos : text.rfind('\n', behind - 1);
    if (begin == text.npos && from > 0) break;  // its begin was not read
    const size_t first = begin == text.npos ? 0 : begin + 1;
    if (auto sample = parse_record(std::string_view(text).substr(first, behind - first)))
      samples.push_back(std::move(*sample));
    behind = begin;
  }
  const uint64_t next = behind == text.npos ? 0 : from + behind + 1;
  return {{"samples", samples}, {"before", next < end ? next : 0}};
}

}  // namespace danlu::board
