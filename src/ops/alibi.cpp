#include "ops/alibi.h"

#include <bit>
#include <cmath>

namespace danlu::ops {

std::vector<double> alibi_slopes(int64_t num_heads) {
  const auto power_of_two = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(num_heads)));
  std::vector<double> slopes;
  for (int64_t i = 1; i <= power_of_two; ++i) {
    slopes.push_back(std::exp2(-8.0 * static_cast<double>(i) / static_cast<double>(power_of_two)));
  }
  for (int64_t i = 1; static_cast<int64_t>(slopes.size()) < num_heads; i += 2) {
    slopes.push_back(std::exp2(-4.0 * static_cast<double>(i) / static_cast<double>(power_of_two)));
  }
  return slopes;
}

}  // namespace danlu::ops
