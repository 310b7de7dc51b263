// tests/support/pairwise.h: few rows that hold every pair of values that many rows hold.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

namespace danlu::test {

using FactorRow = std::vector<int64_t>;

/// A factor, its value, a later factor, its value.
using FactorPair = std::tuple<size_t, int64_t, size_t, int64_t>;

inline std::set<FactorPair> pairs_of(const FactorRow& row) {
  std::set<FactorPair> pairs;
  for (size_t i = 0; i < row.size(); ++i) {
    for (size_t j = i + 1; j < row.size(); ++j) pairs.emplace(i, row[i], j, row[j]);
  }
  return pairs;
}

/// Which pairs of values there are, for many rows.
class PairTable {
 public:
  explicit PairTable(const std::vector<FactorRow>& rows) {
    for (const FactorRow& row : rows) {
      for (size_t i = 0; i < row.size(); ++i) ids_.try_emplace({i, row[i]}, ids_.size());
    }
    left_.assign(ids_.size() * ids_.size(), false);
    rows_.reserve(rows.size());
    for (const FactorRow& row : rows) {
      rows_.emplace_back();
      for (size_t i = 0; i < row.size(); ++i) rows_.back().push_back(ids_.at({i, row[i]}));
      for_pairs(rows_.size() - 1, [&](size_t pair) { left_[pair] = true; });
    }
  }
  size_t count() const { return static_cast<size_t>(std::count(left_.begin(), left_.end(), true)); }
  /// How many pairs of a row are left: no removed row holds them.
  size_t count_of(size_t row) const {
    size_t count = 0;
    for_pairs(row, [&](size_t pair) { count += left_[pair]; });
    return count;
  }
  void remove(size_t row) {
    for_pairs(row, [&](size_t pair) { left_[pair] = false; });
  }

 private:
  template <typename Each>
  void for_pairs(size_t row, const Each& each) const {
    const std::vector<size_t>& ids = rows_[row];
    for (size_t i = 0; i < ids.size(); ++i) {
      for (size_t j = i + 1; j < ids.size(); ++j) each(ids[i] * ids_.size() + ids[j]);
    }
  }

  std::map<std::pair<size_t, int64_t>, size_t> ids_;
  std::vector<std::vector<size_t>> rows_;
  std::vector<bool> left_;
};

/// Indices of rows that together hold every pair of `rows`: always the first of those that add
/// most.
inline std::vector<size_t> covering_rows(const std::vector<FactorRow>& rows) {
  PairTable table(rows);
  // What a row adds only falls: what it added once is a bound.
  std::vector<size_t> bounds(rows.size(), std::numeric_limits<size_t>::max()), chosen;
  while (true) {
    size_t best = 0, most = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
      if (bounds[i] <= most) continue;
      bounds[i] = table.count_of(i);
      if (bounds[i] > most) {
        most = bounds[i];
        best = i;
      }
    }
    if (most == 0) return chosen;
    chosen.push_back(best);
    table.remove(best);
  }
}

}  // namespace danlu::test
