#include <ATen/core/Tensor.h>
#include <fmt/format.h>
#include <torch/version.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <optional>

#include "base/cpu_affinity.h"
#include "base/cpu_class.h"
#include "base/error.h"
#include "base/file.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/threads.h"
#include "bench/compare.h"
#include "bench/processor.h"
#include "bench/report.h"
#include "cli/engine/engine.h"
#include "device/dtype.h"
#include "device/npu.h"
#include "device/select.h"
#include "eval/results/results.h"
#include "measure/suite.h"

namespace danlu::cli {
namespace {

/// Who shares the memory or a core disturbs rows for seconds at a time.
constexpr size_t kLeastLooks = 4, kMostLooks = 13;

std::string date_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

/// A card as a processor: its name, and the kind that figures are compared for.
bench::Processor card_of(const at::Device& device) {
  const bool is_npu = device::name_of(device).starts_with("npu");
  const std::string name = is_npu ? device::npu_chip() : std::string("CUDA");
  std::string key = is_npu ? "npu-" : "";
  for (const char c : name)
    key += std::isalnum(static_cast<unsigned char>(c)) ? static_cast<char>(std::tolower(c)) : '-';
  return {name, key};
}

bench::Circumstances circumstances(const measure::SuiteOptions& suite, size_t cores) {
  const bool is_cpu = suite.device.is_cpu();
  const bench::Processor processor = is_cpu ? bench::this_processor() : card_of(suite.device);
  bench::Circumstances on;
  on.processor = processor.name;
  on.processor_key = processor.key;
  on.cpu_class = is_cpu ? describe_cpu_class() : device::name_of(suite.device);
  on.threads = static_cast<int64_t>(suite.threads);
  on.cores = static_cast<int64_t>(cores);
  on.quick = suite.quick;
  on.date = date_now();
  on.version = DANLU_VERSION;
  on.commit = eval::kSourceCommit;
  on.compiler = __VERSION__;
  on.libtorch = TORCH_VERSION;
  return on;
}

measure::SuiteOptions suite_from(const Options& options) {
  measure::SuiteOptions suite;
  suite.types.clear();
  for (const std::string& name : options.get_list("dtype")) {
    if (name != "fp32" && name != "bf16" && name != "fp16") {
      throw UsageError(
          tr("[{}] must be fp32, bf16 or fp16, got '{}'", options.given_as("dtype"), name));
    }
    suite.types.push_back(device::scalar_type_of(dtype_from_name(name)));
  }
  const std::vector<std::string> parts = options.get_list("only");
  for (const std::string& part : parts) {
    if (part == "limits" || part == "ops" || part == "step" || part == "decode") continue;
    throw UsageError(
        tr("[{}] must be limits, ops, step or decode, got '{}'", options.given_as("only"), part));
  }
  if (suite.types.empty()) throw UsageError(tr("[{}] names no type", options.given_as("dtype")));
  if (options.has_value("only") && parts.empty())
    throw UsageError(tr("[{}] names no part", options.given_as("only")));
  suite.device = device::select(options.get_string("device"));
  if (!suite.device.is_cpu()) {
    if (std::find(parts.begin(), parts.end(), "ops") != parts.end())
      throw UsageError(
          tr("[{}] single operations are measured on the CPU alone", options.given_as("only")),
          tr("take --only step,decode"));
    suite.parts = {"step", "decode"};
  }
  if (!parts.empty()) suite.parts = parts;
  for (const char* place : {"check", "record"}) {
    if (!options.has_value(place)) continue;
    if (options.get_string(place).empty())
      throw UsageError(tr("[{}] names no folder", options.given_as(place)));
    if (suite.parts == std::vector<std::string>{"limits"})
      throw UsageError(tr("[{}] --only limits measures no operation", options.given_as(place)));
  }
  suite.threads = default_thread_count();
  suite.quick = options.get_bool("quick");
  if (const char* slowed = std::getenv("DANLU_BENCH_SLOW")) suite.slowed = slowed;
  return suite;
}

/// The name of a record of figures of this kind of processor, with so many threads.
std::string record_name(const bench::Circumstances& on) {
  return fmt::format("bench_{}_{}threads.json", on.processor_key, on.threads);
}

fs::path recorded_in(const fs::path& place, const bench::Circumstances& on) {
  if (!fs::is_directory(place)) return place;
  const fs::path file = place / record_name(on);
  if (fs::exists(file)) return file;
  throw IoError(tr("[--check] {}: no figures of this kind of processor with {} threads",
                   file.string(), on.threads),
                tr("danlu bench {}--threads {} --record {} makes them", on.quick ? "--quick " : "",
                   on.threads, place.string()));
}

bench::Report measured(const measure::SuiteOptions& suite, measure::Gauge& gauge,
                       const bench::Circumstances& on) {
  std::optional<ProgressBar> bar;
  bench::Report report =
      measure::run_suite(suite, gauge, [&](const std::string& id, size_t done, size_t count) {
        if (const int signal = pending_interrupt())
          throw_interrupted(signal, tr("[bench] stopped: nothing was recorded"));
        if (!bar) bar.emplace(tr("measuring"), count, tr("figures"));
        bar->update(done, id);
      });
  if (bar) bar->finish();
  report.on = on;
  return report;
}

/// What is recorded is looked at until its best is no chance, as often as what is compared with it
/// may be: a row recorded in a bad moment would hide that it has become slower.
void look_again(bench::Report& report, const measure::SuiteOptions& suite, measure::Gauge& gauge) {
  std::vector<bench::Report> looks{report};
  measure::SuiteOptions again = suite;
  while (looks.size() < kMostLooks) {
    if (looks.size() >= kLeastLooks) {
      again.only = bench::unconfirmed(looks);
      if (again.only.empty()) break;
    }
    looks.push_back(measured(again, gauge, report.on));
    bench::take_better(report, looks.back());
  }
}

/// What seems slower is looked at again, and again: what has become slower stays so.
std::vector<bench::RowChange> compared(const bench::Report& recorded, bench::Report& report,
                                       double limit, const measure::SuiteOptions& suite,
                                       measure::Gauge& gauge) {
  auto changes = bench::compare(recorded, report, limit);
  for (size_t look = 1; look < kMostLooks; ++look) {
    measure::SuiteOptions again = suite;
    again.only = bench::suspects(changes);
    if (again.only.empty()) break;
    bench::take_better(report, measured(again, gauge, report.on));
    changes = bench::compare(recorded, report, limit);
  }
  return changes;
}

bench::Report recorded_at(const fs::path& place, const bench::Circumstances& on,
                          const measure::SuiteOptions& suite) {
  const fs::path file = recorded_in(place, on);
  bench::Report recorded = bench::read_report(file);
  bench::require_alike(recorded.on, on);
  std::erase_if(recorded.rows, [&](const auto& row) { return !measure::belongs(row, suite); });
  if (recorded.rows.empty())
    throw DataError(tr("[--check] {}: has none of the rows that are to be measured", file.string()),
                    tr("danlu bench --record adds them"));
  return recorded;
}

/// What is recorded there already; asked before minutes of measuring, as is whether it can be
/// written.
std::optional<bench::Report> to_record_in(const fs::path& folder, const bench::Circumstances& on) {
  if (fs::exists(folder) && !fs::is_directory(folder))
    throw UsageError(tr("[{}] must be a folder, {} is none", "--record", folder.string()));
  fs::create_directories(folder);
  require_writable_directory(folder);
  const fs::path file = folder / record_name(on);
  if (!fs::exists(file)) return std::nullopt;
  try {
    bench::Report earlier = bench::read_report(file);
    bench::require_alike(earlier.on, on);
    return earlier;
  } catch (const DataError& error) {
    if (!error.hint().empty()) throw;
    throw DataError(error.what(), tr("remove it, or record into another folder"));
  }
}

}  // namespace

int run_bench(const Options& options) {
  watch_interrupts();
  if (options.is_given("limit") && !options.has_value("check"))
    log::notice("{} has no effect {}", options.given_as("limit"), "without --check");
  const measure::SuiteOptions suite = suite_from(options);
  if (!suite.slowed.empty() && options.has_value("record"))
    throw UsageError(tr("[{}] DANLU_BENCH_SLOW is set: what is planted would be recorded",
                        options.given_as("record")));
  const bench::Circumstances on = circumstances(suite, online_cpus().size());
  std::optional<bench::Report> recorded, earlier;
  if (options.has_value("check")) recorded = recorded_at(options.get_string("check"), on, suite);
  if (options.has_value("record")) earlier = to_record_in(options.get_string("record"), on);
  measure::Gauge gauge(suite.threads, suite.device);
  bench::Report report = measured(suite, gauge, on);
  if (options.has_value("record")) look_again(report, suite, gauge);
  std::vector<bench::RowChange> changes;
  if (recorded) changes = compared(*recorded, report, options.get_float("limit"), suite, gauge);
  const std::string text =
      options.get_bool("json") ? dump_text(bench::to_json(report)) + "\n" : bench::describe(report);
  std::fputs(text.c_str(), stdout);
  const bool has_failed = std::any_of(changes.begin(), changes.end(),
                                      [](const auto& change) { return change.fails(); });
  if (options.has_value("record") && has_failed) {
    log::warning("{} nothing is recorded, since --check fails", options.given_as("record"));
  } else if (options.has_value("record")) {
    const auto is_measured = [&](const bench::Row& row) { return measure::belongs(row, suite); };
    if (earlier) bench::keep_others(report, *earlier, is_measured);
    write_json_file(fs::path(options.get_string("record")) / record_name(on),
                    bench::to_json(report));
  }
  if (!recorded) return 0;
  // Beside JSON, which stands alone on standard output.
  std::fputs(bench::describe(changes, options.get_float("limit")).c_str(),
             options.get_bool("json") ? stderr : stdout);
  return static_cast<int>(has_failed ? ExitCode::kDevice : ExitCode::kSuccess);
}

}  // namespace danlu::cli
