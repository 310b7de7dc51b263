#include "bench/statistics.h"

#include <algorithm>
#include <cstddef>

namespace danlu::bench {

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

double quantile(std::vector<double> values, double below) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(below * static_cast<double>(values.size() - 1))];
}

double spread(const std::vector<double>& values) {
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  return (*most - *least) / median(values);
}

double moved(double before, double after) {
  return std::max(before, after) / std::min(before, after) - 1;
}

}  // namespace danlu::bench
