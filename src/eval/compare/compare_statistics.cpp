#include "eval/compare/compare_statistics.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/rng.h"

namespace danlu::eval {
namespace {

double as_value(PairedValue kind, double mean) {
  switch (kind) {
    case PairedValue::kPerplexity:
      return std::exp(-mean);
    case PairedValue::kBits:
      return -mean / std::numbers::ln2;
    case PairedValue::kMean:
      break;
  }
  return mean;
}

}  // namespace

PairedValue paired_value_of(const std::string& aggregation) {
  if (aggregation == "perplexity" || aggregation == "weighted_perplexity")
    return PairedValue::kPerplexity;
  return aggregation == "bits_per_byte" ? PairedValue::kBits : PairedValue::kMean;
}

double value_of_a(PairedValue kind, std::span<const PairedItem> items) {
  double sum = 0, weight = 0;
  for (const PairedItem& item : items) sum += item.a, weight += item.weight_a;
  return as_value(kind, sum / weight);
}

double value_of_b(PairedValue kind, std::span<const PairedItem> items) {
  double sum = 0, weight = 0;
  for (const PairedItem& item : items) sum += item.b, weight += item.weight_b;
  return as_value(kind, sum / weight);
}

std::vector<double> bootstrap_differences(PairedValue kind, std::span<const PairedItem> items,
                                          uint64_t seed) {
  std::vector<double> differences;
  if (items.empty()) return differences;
  uint64_t draw = 0;
  for (size_t i = 0; i < kResamples; ++i) {
    double a = 0, b = 0, weight_a = 0, weight_b = 0;
    for (size_t j = 0; j < items.size(); ++j) {
      const PairedItem& item = items[mix64(seed, draw++) % items.size()];
      a += item.a, b += item.b;
      weight_a += item.weight_a, weight_b += item.weight_b;
    }
    differences.push_back(as_value(kind, b / weight_b) - as_value(kind, a / weight_a));
  }
  return differences;
}

Interval middle_95(std::vector<double> differences) {
  std::sort(differences.begin(), differences.end());
  const auto at = [&](double part) {
    return differences[static_cast<size_t>(
        std::lround(part * static_cast<double>(differences.size() - 1)))];
  };
  return {at(0.025), at(0.975)};
}

double bootstrap_p_value(std::span<const double> differences) {
  size_t below = 1, above = 1;  // what was measured counts as one of the resamples
  for (const double difference : differences) {
    below += difference <= 0;
    above += difference >= 0;
  }
  const double rarer = static_cast<double>(std::min(below, above));
  return std::min(1.0, 2 * rarer / static_cast<double>(differences.size() + 1));
}

double sign_test_p_value(int64_t better, int64_t worse) {
  const auto changed = static_cast<double>(better + worse);
  const double fewer = static_cast<double>(std::min(better, worse));
  double tail = 0;
  for (double i = 0; i <= fewer; ++i) {
    const double log_ways =
        std::lgamma(changed + 1) - std::lgamma(i + 1) - std::lgamma(changed - i + 1);
    tail += std::exp(log_ways - changed * std::numbers::ln2);
  }
  return std::min(1.0, 2 * tail);
}

}  // namespace danlu::eval
