// bench/compare.h: whether an operation has become slower than it was, by its best share of
// what the machine could do at the time: that moves less than seconds do.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "bench/report.h"

namespace danlu::bench {

enum class Change {
  kNone,
  kSlower,    ///< recorded share / share now is above the limit
  kFaster,    ///< share now / recorded share is: time to record again
  kUnsteady,  ///< the machine moved too much to say; counts as a failure
  kGone,      ///< recorded, and not measured now; counts as a failure
  kNew,       ///< measured, and not recorded
};

struct RowChange {
  std::string id;
  Change change = Change::kNone;
  double recorded = 0, now = 0;                                  ///< best shares; 0: not there
  double ratio() const { return now > 0 ? recorded / now : 0; }  ///< above 1: slower
  bool fails() const {
    return change == Change::kSlower || change == Change::kUnsteady || change == Change::kGone;
  }
};

/// In the order of `recorded`, then what is new. limit: above 1. Errors: those of require_alike.
std::vector<RowChange> compare(const Report& recorded, const Report& now, double limit);

/// Errors: DataError where figures on these cannot be compared: other kinds of processor, numbers
/// of threads or sizes.
void require_alike(const Circumstances& recorded, const Circumstances& now);

/// Ids of the rows that fail and were measured: worth another look, since a neighbour of this
/// machine can take away for a moment what no reading beside it shows.
std::vector<std::string> suspects(const std::vector<RowChange>& changes);

/// Ids of the rows whose best share fewer than `times` of the looks have come near: less than
/// `near` times below it. Rows that the first look has; those of unsteady ones do not count.
std::vector<std::string> unconfirmed(const std::vector<Report>& looks, size_t times = 3,
                                     double near = 1.03);

/// `again` holds rows of `report` measured once more: of each the one with the higher best
/// share stays, a steady one before an unsteady one. What has really become slower stays slow.
void take_better(Report& report, const Report& again);

/// Takes over from an earlier record the rows that `replaces` does not name and that were not
/// measured now. Errors: those of require_alike.
void keep_others(Report& report, const Report& earlier,
                 const std::function<bool(const Row& row)>& replaces);

/// For the terminal: the rows that changed, and how many did not.
std::string describe(const std::vector<RowChange>& changes, double limit);

}  // namespace danlu::bench
