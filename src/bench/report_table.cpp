// The table that `danlu bench` prints.
#include <fmt/format.h>

#include "base/message.h"
#include "base/table.h"
#include "bench/report.h"
#include "bench/statistics.h"

namespace danlu::bench {
namespace {

std::string duration(double seconds) {
  if (seconds >= 1) return fmt::format("{:.2f} s", seconds);
  if (seconds >= 1e-3) return fmt::format("{:.2f} ms", seconds * 1e3);
  return fmt::format("{:.1f} µs", seconds * 1e6);
}

std::string giga(double amount) { return amount > 0 ? fmt::format("{:.3g}", amount / 1e9) : "-"; }

std::string percent(double share) { return fmt::format("{:.0f} %", share * 100); }

std::string line_of_limit(const Report& report, double Limits::* member, const std::string& name,
                          const char* unit) {
  std::vector<double> values;
  for (const Limits& reading : report.readings) values.push_back(reading.*member);
  if (values.empty() || median(values) == 0) return "";
  return fmt::format("  {}  {:.1f} {}  (± {})\n", name, median(values) / 1e9, unit,
                     percent(spread(values) / 2));
}

std::string head(const Report& report) {
  const Circumstances& on = report.on;
  std::string out = tr("{}, {}; {} of {} processors; danlu {} {}, libtorch {}\n",
                       on.processor.empty() ? on.processor_key : on.processor, on.cpu_class,
                       on.threads, on.cores, on.version, on.commit, on.libtorch);
  if (on.quick)
    out += tr("--quick: small shapes and few samples; to be compared with --quick alone\n");
  out +=
      tr("what the machine can do, measured {} times between the runs:\n", report.readings.size());
  out += line_of_limit(report, &Limits::f32_flops, tr("peak, fp32     "), "GFLOP/s");
  out += line_of_limit(report, &Limits::bf16_flops, tr("peak, bf16     "), "GFLOP/s");
  out += line_of_limit(report, &Limits::read_bytes, tr("memory, read   "), "GB/s");
  out += line_of_limit(report, &Limits::copy_bytes, tr("memory, copy   "), "GB/s");
  out += line_of_limit(report, &Limits::update_bytes, tr("memory, update "), "GB/s");
  return out;
}

std::vector<std::string> cells(const Row& row, const Limits& limits) {
  const double seconds = row.seconds();
  const std::string tokens =
      row.tokens > 0 ? fmt::format("{:.1f}", row.tokens / seconds) : std::string("-");
  const std::string bound =
      bound_of(row.work, limits) == Bound::kCompute ? tr("peak") : tr("memory");
  return {"  " + row.name,
          row.dtype,
          duration(seconds),
          giga(row.work.flops / seconds),
          giga(row.work.bytes() / seconds),
          tokens,
          bound,
          percent(row.share()),
          percent(row.share_spread() / 2),
          row.is_steady() ? "-" : tr("unsteady")};
}

}  // namespace

std::string describe(const Report& report) {
  const Limits limits = report.limits();
  std::string out = head(report);
  if (report.rows.empty()) return out;
  Table table(
      {"what", "type", "time", "GFLOP/s", "GB/s", "tokens/s", "bound by", "share", "±", "machine"});
  for (const char* group : kGroups) {
    bool is_first = true;
    for (const Row& row : report.rows) {
      if (row.group != group) continue;
      if (is_first) table.add_row({std::string(translated(group))});
      is_first = false;
      table.add_row(cells(row, limits));
    }
  }
  out += "\n" + table.drawn() + "\n";
  out +=
      tr("share: of the time that its multiplications would take at the peak, or its bytes at the "
         "memory's speed, whichever is longer, at that moment. docs/benchmarks.md says more.\n");
  return out;
}

}  // namespace danlu::bench
