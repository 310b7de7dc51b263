#include "eval/compare/compare_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <system_error>

#include "base/error.h"
#include "base/log.h"
#include "base/nearest_name.h"
#include "eval/results/samples.h"
#include "eval/scoring/python_str.h"
#include "text/jinja/python_text.h"

namespace danlu::eval {
namespace {

/// "2026-…" of "results_2026-….json": it sorts by age.
std::string time_of(const fs::path& results) {
  const std::string stem = results.filename().stem().string();
  return stem.substr(stem.rfind('_') + 1);
}

bool is_results_file(const fs::path& path) {
  return path.filename().string().starts_with("results_") && path.extension() == ".json";
}

void add_results_files(const fs::path& directory, std::vector<fs::path>& files, bool below) {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory, ignored)) {
    if (is_results_file(entry.path())) files.push_back(entry.path());
    if (below && entry.is_directory(ignored)) add_results_files(entry.path(), files, false);
  }
}

std::string text_in(const Json& record, const char* key) {
  const auto found = record.find(key);
  return found != record.end() && found->is_string() ? found->get<std::string>() : "";
}

std::optional<double> number_of(const Json& value) {
  if (value.is_number()) return value.get<double>();
  if (!value.is_string()) return std::nullopt;
  const auto& text = value.get_ref<const std::string&>();
  double number = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (problem != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

/// The log-likelihood in "[[["-1.5", "False"]], …]" of each choice; empty if it is something else.
std::vector<double> recorded_likelihoods(const Json& record) {
  std::vector<double> values;
  const auto responses = record.find("resps");
  if (responses == record.end() || !responses->is_array() || responses->size() < 2) return {};
  for (const Json& request : *responses) {
    if (!request.is_array() || request.empty() || !request[0].is_array() || request[0].size() != 2)
      return {};
    const auto value = number_of(request[0][0]);
    if (!value) return {};
    values.push_back(*value);
  }
  return values;
}

std::string choice_text(const Json& record, size_t place) {
  const Json arguments = record.value("arguments", Json::object());
  const std::string key = "gen_args_" + std::to_string(place);
  std::string text;
  if (arguments.is_object() && arguments.contains(key) && arguments[key].is_object())
    text = text_in(arguments[key], "arg_1");
  return fmt::format("{}: {}", place, text::jinja::strip(text));
}

std::string shown_answer(const Json& record) {
  const std::vector<double> values = recorded_likelihoods(record);
  if (!values.empty()) {
    const auto best = std::max_element(values.begin(), values.end());
    return choice_text(record, static_cast<size_t>(best - values.begin()));
  }
  const Json filtered = record.value("filtered_resps", Json());
  if (filtered.is_array() && filtered.size() == 1) return python_str(filtered[0]);
  return filtered.is_null() ? "" : python_str(filtered);
}

std::string target_of(const Json& record) {
  const std::string target = python_str(record.value("target", Json("")));
  size_t place = 0;
  const char* end = target.data() + target.size();
  const auto [read, problem] = std::from_chars(target.data(), end, place);
  const bool is_place = problem == std::errc() && read == end;
  return is_place && place < recorded_likelihoods(record).size() ? choice_text(record, place)
                                                                 : target;
}

SampleLine sample_line(const Json& record, const std::string& origin) {
  if (!record.is_object()) throw DataError(tr("{}: a sample must be an object", origin));
  SampleLine line;
  line.doc_id = record.value("doc_id", Json());
  line.doc_hash = text_in(record, "doc_hash");
  line.prompt_hash = text_in(record, "prompt_hash");
  line.target_hash = text_in(record, "target_hash");
  if (line.doc_hash.empty()) {
    throw DataError(tr("{}: the sample has no 'doc_hash', by which items are matched", origin),
                    tr("samples of lm-eval before 0.4.3 have none: evaluate again"));
  }
  line.filter = record.contains("filter") ? text_in(record, "filter") : "none";
  line.target = target_of(record);
  line.answer = shown_answer(record);
  const Json names = record.value("metrics", Json::array());
  for (const Json& name : names) {
    if (name.is_string() && record.contains(name.get<std::string>()))
      line.values[name.get<std::string>()] = record[name.get<std::string>()];
  }
  return line;
}

std::vector<SampleLine> read_samples(const fs::path& path) {
  std::vector<SampleLine> lines;
  const MappedFile file(path);
  std::string_view rest = file.text();
  for (int64_t number = 1; !rest.empty(); ++number) {
    const size_t end = rest.find('\n');
    const std::string_view text = rest.substr(0, end);
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
    if (text.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const std::string origin = fmt::format("{}:{}", path.string(), number);
    lines.push_back(sample_line(parse_json(text, origin), origin));
  }
  return lines;
}

}  // namespace

std::string RunFiles::model_name() const {
  for (const char* key : {"model_name", "model_name_sanitized"}) {
    const std::string name = text_in(results, key);
    if (!name.empty()) return name;
  }
  return "";
}

Json RunFiles::at(const char* section, const std::string& name) const {
  const auto found = results.find(section);
  if (found == results.end() || !found->is_object() || !found->contains(name)) return Json();
  return (*found)[name];
}

fs::path find_results(const fs::path& run) {
  std::error_code ignored;
  if (!fs::exists(run, ignored))
    throw DataError(tr("{}: there is no such file or directory", run.string()),
                    did_you_mean_path(run));
  if (!fs::is_directory(run, ignored)) return run;
  std::vector<fs::path> files;
  add_results_files(run, files, true);
  if (files.empty()) {
    throw DataError(tr("{}: no results_*.json in it", run.string()),
                    tr("danlu eval --output_path writes one"));
  }
  const fs::path newest =
      *std::max_element(files.begin(), files.end(), [](const fs::path& a, const fs::path& b) {
        return std::pair(time_of(a), a) < std::pair(time_of(b), b);
      });
  if (files.size() > 1)
    log::info("{}: of {} results the newest: {}", run.string(), files.size(), newest.string());
  return newest;
}

RunFiles read_run(const fs::path& run) {
  RunFiles files;
  files.results_path = find_results(run);
  files.results = read_json_file(files.results_path);
  if (!files.results.is_object() || !files.results.contains("results") ||
      !files.results["results"].is_object()) {
    throw DataError(tr("{}: this is no file of results: it has no object 'results'",
                       files.results_path.string()));
  }
  const std::string time = time_of(files.results_path);
  for (const auto& [task, numbers] : files.results["results"].items()) {
    const fs::path path = files.results_path.parent_path() / samples_file_name(task, time);
    std::error_code ignored;
    if (fs::exists(path, ignored)) files.samples.emplace(task, read_samples(path));
  }
  if (files.samples.empty()) {
    throw DataError(tr("{}: no {} beside it: runs are compared item by item",
                       files.results_path.string(), samples_file_name("*", time)),
                    tr("evaluate with --log_samples"));
  }
  return files;
}

}  // namespace danlu::eval
