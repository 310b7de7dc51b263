#include "train/correlation.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace danlu::train {
namespace {

double mean_of_numbers(const std::vector<double>& numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), 0.0) / static_cast<double>(numbers.size());
}

std::vector<double> places_in_order(const std::vector<double>& numbers) {
  std::vector<size_t> order(numbers.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return numbers[a] < numbers[b]; });
  std::vector<double> places(numbers.size());
  for (size_t begin = 0; begin < order.size();) {
    size_t end = begin;
    while (end < order.size() && numbers[order[end]] == numbers[order[begin]]) ++end;
    for (size_t i = begin; i < end; ++i)
      places[order[i]] = static_cast<double>(begin + end - 1) / 2;
    begin = end;
  }
  return places;
}

}  // namespace

std::optional<double> pearson(const std::vector<double>& x, const std::vector<double>& y) {
  if (x.empty()) return std::nullopt;
  const double x_mean = mean_of_numbers(x), y_mean = mean_of_numbers(y);
  double xx = 0, yy = 0, xy = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    xx += (x[i] - x_mean) * (x[i] - x_mean);
    yy += (y[i] - y_mean) * (y[i] - y_mean);
    xy += (x[i] - x_mean) * (y[i] - y_mean);
  }
  if (!(xx > 0) || !(yy > 0)) return std::nullopt;
  return xy / std::sqrt(xx * yy);
}

std::optional<double> spearman(const std::vector<double>& x, const std::vector<double>& y) {
  return pearson(places_in_order(x), places_in_order(y));
}

}  // namespace danlu::train
