#include "train/report/sparkline.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace danlu::train {

std::string sparkline(std::span<const double> values, int width) {
  static constexpr const char* kBlocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  const size_t columns = std::min(values.size(), static_cast<size_t>(std::max(width, 1)));
  std::vector<double> means;
  for (size_t c = 0; c < columns; ++c) {
    const size_t begin = values.size() * c / columns, end = values.size() * (c + 1) / columns;
    double sum = 0;
    int count = 0;
    for (size_t i = begin; i < end; ++i) {
      if (!std::isfinite(values[i])) continue;
      sum += values[i];
      ++count;
    }
    means.push_back(count > 0 ? sum / count : std::numeric_limits<double>::quiet_NaN());
  }
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (const double mean : means) {
    if (std::isnan(mean)) continue;
    low = std::min(low, mean);
    high = std::max(high, mean);
  }
  std::string line;
  for (const double mean : means) {
    if (std::isnan(mean)) {
      line += ' ';
      continue;
    }
    const double height = high > low ? (mean - low) / (high - low) : 0.5;
    line += kBlocks[std::min(7, static_cast<int>(height * 8))];
  }
  return line;
}

}  // namespace danlu::train
