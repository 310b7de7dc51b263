#include "eval/scoring/aggregation.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>

#include "base/error.h"
#include "base/rng.h"

namespace danlu::eval {
namespace {

constexpr std::array<std::string_view, 4> kAggregations = {"mean", "perplexity",
                                                           "weighted_perplexity", "bits_per_byte"};
constexpr uint64_t kBootstrapSeed = 1234;
constexpr size_t kBootstraps = 1000;

std::vector<double> numbers_of(std::string_view metric, std::span<const Json> values) {
  std::vector<double> numbers;
  numbers.reserve(values.size());
  for (const Json& value : values) {
    const std::optional<double> number = item_number(metric, value);
    if (!number) throw InternalError("[eval] " + std::string(metric) + " of an item is no number");
    numbers.push_back(*number);
  }
  return numbers;
}

double weighted_mean(std::string_view metric, std::span<const Json> values) {
  double sum = 0, weight = 0;
  for (const Json& value : values) {
    if (!value.is_array() || value.size() != 2 || !value[0].is_number() || !value[1].is_number())
      throw InternalError("[eval] " + std::string(metric) + " of an item is no pair");
    sum += value[0].get<double>();
    weight += value[1].get<double>();
  }
  return sum / weight;
}

}  // namespace

std::string aggregation_of(const Metric& metric) {
  if (metric.aggregation != "mean") return metric.aggregation;
  if (metric.name == "perplexity" || metric.name == "bits_per_byte") return metric.name;
  if (metric.name == "word_perplexity" || metric.name == "byte_perplexity")
    return "weighted_perplexity";
  return "mean";
}

std::vector<std::string> aggregation_names() {
  return {kAggregations.begin(), kAggregations.end()};
}

bool is_known_aggregation(std::string_view aggregation) {
  return std::find(kAggregations.begin(), kAggregations.end(), aggregation) != kAggregations.end();
}

int64_t pass_at(std::string_view metric) {
  constexpr std::string_view kPrefix = "pass@";
  if (!metric.starts_with(kPrefix)) return 0;
  int64_t k = 0;
  const char* end = metric.data() + metric.size();
  const auto [read, problem] = std::from_chars(metric.data() + kPrefix.size(), end, k);
  return problem == std::errc() && read == end && k > 0 ? k : 0;
}

bool is_short_of_draws(std::string_view metric, const Json& value) {
  return value.is_array() && value.size() == 2 && value[0].is_number_integer() &&
         value[0].get<int64_t>() < pass_at(metric);
}

double pass_at_k(int64_t n, int64_t c, int64_t k) {
  if (k > n) {
    throw DataError(tr("pass@{} needs at least {} answers to an item, got {}", k, k, n),
                    tr("'repeats' of the task says how many are drawn"));
  }
  if (n - c < k) return 1;
  // C(n-c, k) / C(n, k) is the product of 1 - k/i over i = n-c+1 … n: no factorial overflows.
  double none_passes = 1;
  for (int64_t i = n - c + 1; i <= n; ++i)
    none_passes *= 1 - static_cast<double>(k) / static_cast<double>(i);
  return 1 - none_passes;
}

std::optional<double> item_number(std::string_view metric, const Json& value) {
  if (value.is_boolean()) return value.get<bool>() ? 1 : 0;
  if (value.is_number()) return value.get<double>();
  const int64_t k = pass_at(metric);
  if (k > 0 && value.is_array() && value.size() == 2 && value[0].is_number_integer() &&
      value[1].is_number_integer())
    return pass_at_k(value[0].get<int64_t>(), value[1].get<int64_t>(), k);
  return std::nullopt;
}

double aggregated(const std::string& aggregation, std::string_view metric,
                  std::span<const Json> values) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  if (aggregation == "weighted_perplexity") return std::exp(-weighted_mean(metric, values));
  if (aggregation == "bits_per_byte") return -weighted_mean(metric, values) / std::numbers::ln2;
  const double mean = mean_of(numbers_of(metric, values));
  return aggregation == "perplexity" ? std::exp(-mean) : mean;
}

std::optional<double> standard_error(const std::string& aggregation, std::string_view metric,
                                     std::span<const Json> values) {
  if (values.size() < 2) return std::nullopt;
  if (aggregation != "mean" && aggregation != "perplexity") return std::nullopt;
  const std::vector<double> numbers = numbers_of(metric, values);
  if (aggregation == "mean")
    return sample_deviation(numbers) / std::sqrt(static_cast<double>(numbers.size()));
  std::vector<double> perplexities;
  uint64_t draw = 0;
  for (size_t i = 0; i < kBootstraps; ++i) {
    double sum = 0;
    for (size_t j = 0; j < numbers.size(); ++j)
      sum += numbers[mix64(kBootstrapSeed, draw++) % numbers.size()];
    perplexities.push_back(std::exp(-sum / static_cast<double>(numbers.size())));
  }
  return sample_deviation(perplexities);
}

double mean_of(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double sample_deviation(std::span<const double> values) {
  const double mean = mean_of(values);
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / static_cast<double>(values.size() - 1));
}

std::optional<double> pooled_standard_error(std::span<const double> errors,
                                            std::span<const int64_t> sizes) {
  double squares = 0, total = 0;
  for (size_t i = 0; i < errors.size(); ++i) {
    const auto size = static_cast<double>(sizes[i]);
    squares += (size - 1) * errors[i] * errors[i] * size;
    total += size;
  }
  const double freedom = total - static_cast<double>(errors.size());
  if (freedom <= 0) return std::nullopt;
  return std::sqrt(squares / freedom / total);
}

}  // namespace danlu::eval
