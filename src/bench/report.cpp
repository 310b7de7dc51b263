#include "bench/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/error.h"
#include "bench/statistics.h"

namespace danlu::bench {

double Row::seconds() const {
  std::vector<double> values;
  for (const Sample& sample : samples)
    if (sample.is_steady || !is_steady()) values.push_back(sample.seconds);
  return median(std::move(values));
}

bool Row::is_steady() const {
  const auto steady = std::count_if(samples.begin(), samples.end(),
                                    [](const Sample& sample) { return sample.is_steady; });
  return 2 * steady >= static_cast<int64_t>(samples.size());
}

std::vector<double> Row::shares() const {
  std::vector<double> values;
  for (const Sample& sample : samples)
    if (sample.is_steady || !is_steady()) values.push_back(share_of_limit(work, sample));
  return values;
}

double Row::share() const { return median(shares()); }
double Row::best_share(const Limits& of_run, double may_move) const {
  double seconds = samples.front().seconds, own = least_seconds(work, samples.front().before);
  for (const Sample& sample : samples) {
    seconds = std::min(seconds, sample.seconds);
    for (const Limits& limits : {sample.before, sample.after})
      own = std::min(own, least_seconds(work, limits));
  }
  const double all = least_seconds(work, of_run);
  // A run that took less than the memory's speed beside it allows came from caches, which do not
  // become slower with it.
  const bool bounded = own <= seconds * (1 + may_move);
  return (bounded && own > all * (1 + may_move) ? own : all) / seconds;
}

double Row::share_spread() const { return spread(shares()); }

namespace {

/// Limits, each of which is what pick() makes of its readings.
template <typename Pick>
Limits limits_by(const std::vector<Limits>& readings, const Pick& pick) {
  const auto of = [&](double Limits::* member) {
    std::vector<double> values;
    for (const Limits& reading : readings) values.push_back(reading.*member);
    return values.empty() ? 0.0 : pick(std::move(values));
  };
  return {of(&Limits::f32_flops), of(&Limits::bf16_flops), of(&Limits::read_bytes),
          of(&Limits::copy_bytes), of(&Limits::update_bytes)};
}

}  // namespace

Limits Report::limits() const {
  return limits_by(readings, [](auto values) { return median(std::move(values)); });
}

Limits Report::undisturbed_limits() const {
  return limits_by(readings, [](auto values) { return quantile(std::move(values), 0.9); });
}

const Row* Report::find(const std::string& id) const {
  const auto found =
      std::find_if(rows.begin(), rows.end(), [&](const Row& row) { return row.id() == id; });
  return found == rows.end() ? nullptr : &*found;
}

namespace {

constexpr const char* kFormat = "danlu-bench-1";

/// Six digits are more than any of them means.
double rounded(double value) {
  if (value == 0) return 0;
  const double scale = std::pow(10.0, 5 - std::floor(std::log10(std::abs(value))));
  return std::round(value * scale) / scale;
}

Json json_of(const Limits& limits) {
  return {{"f32_flops", rounded(limits.f32_flops)},
          {"bf16_flops", rounded(limits.bf16_flops)},
          {"read_bytes", rounded(limits.read_bytes)},
          {"copy_bytes", rounded(limits.copy_bytes)},
          {"update_bytes", rounded(limits.update_bytes)}};
}

Json json_of(const Row& row, const Limits& limits, double best_share) {
  Json samples = Json::array();
  for (const Sample& sample : row.samples) {
    samples.push_back({{"seconds", rounded(sample.seconds)},
                       {"steady", sample.is_steady},
                       {"before", json_of(sample.before)},
                       {"after", json_of(sample.after)}});
  }
  Json json = {{"name", row.name},
               {"group", row.group},
               {"dtype", row.dtype},
               {"seconds", rounded(row.seconds())},
               {"flops", row.work.flops},
               {"multiplies_bf16", row.work.in_bf16},
               {"bytes_read", row.work.bytes_read},
               {"bytes_written", row.work.bytes_written},
               {"bound", bound_of(row.work, limits) == Bound::kCompute ? "compute" : "memory"},
               {"share", rounded(row.share())},
               {"share_spread", rounded(row.share_spread())},
               {"best_share", rounded(best_share)},
               {"steady", row.is_steady()}};
  if (row.tokens > 0) {
    json["tokens"] = row.tokens;
    json["tokens_per_s"] = rounded(row.tokens / row.seconds());
  }
  json["samples"] = std::move(samples);
  if (row.of_run.f32_flops > 0) json["of_run"] = json_of(row.of_run);
  return json;
}

template <typename T>
T required(const Json& object, const char* key) {
  const auto value = json_get<T>(object, key);
  if (!value) throw DataError(tr("\"{}\" is missing", key));
  return *value;
}

double positive(const Json& object, const char* key) {
  const double value = required<double>(object, key);
  if (!(value > 0) || !std::isfinite(value))
    throw DataError(tr("\"{}\" must be above 0, got {}", key, value));
  return value;
}

double not_negative(const Json& object, const char* key) {
  const double value = required<double>(object, key);
  if (!(value >= 0) || !std::isfinite(value))
    throw DataError(tr("\"{}\" must be at least 0, got {}", key, value));
  return value;
}

const Json& object_in(const Json& json, const char* key) {
  const auto found = json.is_object() ? json.find(key) : json.end();
  if (found == json.end()) throw DataError(tr("\"{}\" is missing", key));
  if (!found->is_object()) throw_wrong_type(key, "an object", *found);
  return *found;
}

const Json& list_in(const Json& json, const char* key) {
  const auto found = json.is_object() ? json.find(key) : json.end();
  if (found == json.end()) throw DataError(tr("\"{}\" is missing", key));
  if (!found->is_array() || found->empty())
    throw_wrong_type(key, "a list that is not empty", *found);
  for (const Json& element : *found)
    if (!element.is_object()) throw_wrong_type(key, "a list of objects", element);
  return *found;
}

Limits limits_from(const Json& json) {
  return {positive(json, "f32_flops"), not_negative(json, "bf16_flops"),
          positive(json, "read_bytes"), positive(json, "copy_bytes"),
          positive(json, "update_bytes")};
}

Row row_from(const Json& json) {
  Row row;
  row.name = required<std::string>(json, "name");
  row.group = required<std::string>(json, "group");
  row.dtype = required<std::string>(json, "dtype");
  row.work = {not_negative(json, "flops"), required<bool>(json, "multiplies_bf16"),
              not_negative(json, "bytes_read"), not_negative(json, "bytes_written")};
  if (row.work.flops + row.work.bytes_read + row.work.bytes_written <= 0)
    throw DataError(tr("\"{}\" multiplies nothing and moves no byte", row.name));
  row.tokens = json_get<double>(json, "tokens").value_or(0);
  if (json.contains("of_run")) row.of_run = limits_from(object_in(json, "of_run"));
  for (const Json& sample : list_in(json, "samples")) {
    row.samples.push_back({positive(sample, "seconds"), limits_from(object_in(sample, "before")),
                           limits_from(object_in(sample, "after")),
                           required<bool>(sample, "steady")});
  }
  return row;
}

}  // namespace

Json to_json(const Report& report) {
  const Limits limits = report.limits();
  Json rows = Json::array(), readings = Json::array();
  for (const Row& row : report.rows) rows.push_back(json_of(row, limits, report.best_share(row)));
  for (const Limits& reading : report.readings) readings.push_back(json_of(reading));
  const Circumstances& on = report.on;
  return {
      {"format", kFormat},         {"processor", on.processor}, {"processor_key", on.processor_key},
      {"cpu_class", on.cpu_class}, {"threads", on.threads},     {"cores", on.cores},
      {"quick", on.quick},         {"date", on.date},           {"version", on.version},
      {"commit", on.commit},       {"compiler", on.compiler},   {"libtorch", on.libtorch},
      {"limits", json_of(limits)}, {"rows", std::move(rows)},   {"readings", std::move(readings)}};
}

Report report_from_json(const Json& json) {
  if (!json.is_object() || json_get<std::string>(json, "format") != kFormat)
    throw DataError(tr("\"format\" must be \"{}\": this is no output of danlu bench", kFormat));
  Report report;
  Circumstances& on = report.on;
  on.processor = required<std::string>(json, "processor");
  on.processor_key = required<std::string>(json, "processor_key");
  on.cpu_class = required<std::string>(json, "cpu_class");
  on.threads = required<int64_t>(json, "threads");
  on.cores = required<int64_t>(json, "cores");
  on.quick = required<bool>(json, "quick");
  for (const auto& [key, member] : {std::pair{"date", &Circumstances::date},
                                    {"version", &Circumstances::version},
                                    {"commit", &Circumstances::commit},
                                    {"compiler", &Circumstances::compiler},
                                    {"libtorch", &Circumstances::libtorch}})
    on.*member = required<std::string>(json, key);
  for (const Json& json_row : list_in(json, "rows")) {
    Row row = row_from(json_row);
    if (report.find(row.id())) throw DataError(tr("\"{}\" is there twice", row.id()));
    report.rows.push_back(std::move(row));
  }
  for (const Json& reading : list_in(json, "readings"))
    report.readings.push_back(limits_from(reading));
  return report;
}

Report read_report(const std::filesystem::path& path) {
  try {
    return report_from_json(read_json_file(path));
  } catch (const DataError& error) {
    const std::string what = error.what();
    if (what.rfind(path.string(), 0) == 0) throw;
    throw DataError(fmt::format("{}: {}", path.string(), what), error.hint());
  }
}

}  // namespace danlu::bench
