// eval/scoring/aggregation.h: numbers of items become one with its standard error, those of tasks a
// group's.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "eval/task.h"

namespace danlu::eval {

/// How a metric's values of items become one: what the task says; where that is the mean and its
/// values are none to be averaged ("word_perplexity"), its own way.
std::string aggregation_of(const Metric& metric);
std::vector<std::string> aggregation_names();
bool is_known_aggregation(std::string_view aggregation);

/// The metric of which a task says for which k it is reported.
inline constexpr std::string_view kPassAtAny = "pass@k";
/// k of "pass@10", else 0.
int64_t pass_at(std::string_view metric);
/// Whether fewer than k answers are there for "pass@<k>": it is not reported then.
bool is_short_of_draws(std::string_view metric, const Json& value);
/// 1 - C(n-c, k) / C(n, k): the chance that of k draws out of n, of which c pass, at least one
/// does. Errors: DataError if k > n; REQUIRES: 0 <= c <= n.
double pass_at_k(int64_t n, int64_t c, int64_t k);
/// An item's value as a number that can be averaged: numbers and booleans as they are; of pass@k
/// also [n, c]. Nothing if it is something else, such as [log-likelihood, words].
std::optional<double> item_number(std::string_view metric, const Json& value);

/// "mean"; "perplexity": exp(-mean); of pairs [log-likelihood, weight] "weighted_perplexity":
/// exp(-sum / sum), "bits_per_byte": the same as bits. NaN if there are no values.
/// Errors: InternalError if a value is no number or pair.
double aggregated(const std::string& aggregation, std::string_view metric,
                  std::span<const Json> values);
/// lm-eval's convention: sample standard deviation / sqrt(n) of a mean, the bootstrap (1000
/// resamples, always the same) of a perplexity, nothing for pairs or fewer than two values.
std::optional<double> standard_error(const std::string& aggregation, std::string_view metric,
                                     std::span<const Json> values);

double mean_of(std::span<const double> values);
/// With n - 1; REQUIRES: two values.
double sample_deviation(std::span<const double> values);
/// The standard error of the mean of all items, from those of parts, by the pooled variance.
/// Nothing if no part has two.
std::optional<double> pooled_standard_error(std::span<const double> errors,
                                            std::span<const int64_t> sizes);

}  // namespace danlu::eval
