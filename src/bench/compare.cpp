#include "bench/compare.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/message.h"
#include "base/table.h"

namespace danlu::bench {
namespace {

Change change_of(double ratio, bool is_steady, double limit) {
  if (ratio > limit) return is_steady ? Change::kSlower : Change::kUnsteady;
  return ratio < 1 / limit ? Change::kFaster : Change::kNone;
}

std::string word_of_change(Change change) {
  switch (change) {
    case Change::kSlower:
      return tr("SLOWER");
    case Change::kFaster:
      return tr("faster: record again");
    case Change::kUnsteady:
      return tr("UNDECIDED: the machine was unsteady");
    case Change::kGone:
      return tr("GONE: recorded, and not measured now");
    case Change::kNew:
      return tr("new: not recorded");
    case Change::kNone:
      break;
  }
  return "";
}

std::string share_text(double share) { return share > 0 ? fmt::format("{:.3f}", share) : "-"; }

}  // namespace

void require_alike(const Circumstances& recorded, const Circumstances& now) {
  if (recorded.processor_key != now.processor_key) {
    throw DataError(tr("[bench] recorded on {}, measured on {}: processors of another kind",
                       recorded.processor_key, now.processor_key),
                    tr("record this kind too: danlu bench --record DIR"));
  }
  if (recorded.threads != now.threads) {
    throw DataError(
        tr("[bench] recorded with {} threads, measured with {}", recorded.threads, now.threads),
        tr("choose as many with --threads"));
  }
  if (recorded.quick != now.quick) {
    throw DataError(recorded.quick ? tr("[bench] recorded with --quick, measured without")
                                   : tr("[bench] recorded without --quick, measured with it"),
                    recorded.quick ? tr("add --quick") : tr("leave --quick out"));
  }
}

std::vector<RowChange> compare(const Report& recorded, const Report& now, double limit) {
  require_alike(recorded.on, now.on);
  std::vector<RowChange> changes;
  for (const Row& before : recorded.rows) {
    RowChange change{before.id(), Change::kGone, recorded.best_share(before), 0};
    if (const Row* after = now.find(before.id())) {
      change.now = now.best_share(*after);
      change.change = change_of(change.ratio(), after->is_steady(), limit);
    }
    changes.push_back(change);
  }
  for (const Row& row : now.rows)
    if (!recorded.find(row.id()))
      changes.push_back({row.id(), Change::kNew, 0, now.best_share(row)});
  return changes;
}

std::vector<std::string> suspects(const std::vector<RowChange>& changes) {
  std::vector<std::string> ids;
  for (const RowChange& change : changes)
    if (change.change == Change::kSlower || change.change == Change::kUnsteady)
      ids.push_back(change.id);
  return ids;
}

std::vector<std::string> unconfirmed(const std::vector<Report>& looks, size_t times, double near) {
  std::vector<std::string> ids;
  for (const Row& row : looks.front().rows) {
    std::vector<double> shares;
    for (const Report& look : looks) {
      const Row* const seen = look.find(row.id());
      if (seen && seen->is_steady()) shares.push_back(look.best_share(*seen));
    }
    const double best = shares.empty() ? 0 : *std::max_element(shares.begin(), shares.end());
    const auto count = std::count_if(shares.begin(), shares.end(),
                                     [&](double share) { return share * near > best; });
    if (static_cast<size_t>(count) < times) ids.push_back(row.id());
  }
  return ids;
}

void take_better(Report& report, const Report& again) {
  for (Row& row : report.rows) {
    const Row* other = again.find(row.id());
    if (!other) continue;
    const bool is_better = other->is_steady() != row.is_steady()
                               ? other->is_steady()
                               : again.best_share(*other) > report.best_share(row);
    if (!is_better) continue;
    row = *other;
    row.of_run = again.undisturbed_limits();
  }
}

void keep_others(Report& report, const Report& earlier,
                 const std::function<bool(const Row& row)>& replaces) {
  require_alike(earlier.on, report.on);
  for (const Row& row : earlier.rows) {
    if (replaces(row) || report.find(row.id())) continue;
    report.rows.push_back(row);
    if (row.of_run.f32_flops == 0) report.rows.back().of_run = earlier.undisturbed_limits();
  }
}

std::string describe(const std::vector<RowChange>& changes, double limit) {
  Table table({"what", "recorded", "now", "ratio", "verdict"});
  int64_t same = 0, failed = 0;
  for (const RowChange& change : changes) {
    if (change.fails()) ++failed;
    if (change.change == Change::kNone) {
      ++same;
      continue;
    }
    const double ratio = change.recorded > 0 ? change.ratio() : 0;
    table.add_row({change.id, share_text(change.recorded), share_text(change.now),
                   ratio > 0 ? fmt::format("{:.2f}", ratio) : "-", word_of_change(change.change)});
  }
  std::string out = same < static_cast<int64_t>(changes.size()) ? table.drawn() : std::string();
  out += tr("{} as recorded (within {:.2f} times the share of the limit), {} failed\n", same, limit,
            failed);
  return out;
}

}  // namespace danlu::bench
