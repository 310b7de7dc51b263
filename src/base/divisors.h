// base/divisors.h: the sizes into which a number of things can be shared out.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

namespace danlu {

/// The divisors of `number` up to `most`, ascending.
inline std::vector<int64_t> divisors(int64_t number, int64_t most = INT64_MAX) {
  std::vector<int64_t> all;
  for (int64_t size = 1; size <= std::min(number, most); ++size) {
    if (number % size == 0) all.push_back(size);
  }
  return all;
}

}  // namespace danlu
