// tests/support/pairwise.h: few rows that hold every pair of values that many rows hold.
#pragma once
#include <cstddef>
#include <cstdint>
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

/// Indices of rows that together hold every pair of `rows`: always the first of those that add
/// most.
inline std::vector<size_t> covering_rows(const std::vector<FactorRow>& rows) {
  std::vector<std::set<FactorPair>> left;
  left.reserve(rows.size());
  for (const FactorRow& row : rows) left.push_back(pairs_of(row));
  std::vector<size_t> chosen;
  while (true) {
    size_t best = 0;
    for (size_t i = 0; i < left.size(); ++i) {
      if (left[i].size() > left[best].size()) best = i;
    }
    if (left.empty() || left[best].empty()) return chosen;
    chosen.push_back(best);
    const std::set<FactorPair> held = std::move(left[best]);
    left[best].clear();
    for (std::set<FactorPair>& pairs : left) {
      for (const FactorPair& pair : held) pairs.erase(pair);
    }
  }
}

}  // namespace danlu::test
