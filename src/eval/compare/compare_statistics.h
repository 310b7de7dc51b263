// eval/compare/compare_statistics.h: whether a difference between two runs on the same items is
// chance.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace danlu::eval {

/// An item's value in both runs, as numerator and denominator: of a plain mean the denominator is
/// 1, of a perplexity words or bytes.
struct PairedItem {
  double a = 0, b = 0;
  double weight_a = 1, weight_b = 1;
};

/// How sums become the metric's value.
enum class PairedValue { kMean, kPerplexity, kBits };
PairedValue paired_value_of(const std::string& aggregation);

double value_of_a(PairedValue kind, std::span<const PairedItem> items);
double value_of_b(PairedValue kind, std::span<const PairedItem> items);

inline constexpr size_t kResamples = 10'000;

/// Differences B - A of kResamples resamples of the items, in the order in which they were drawn:
/// the same for the same seed. Empty without items.
std::vector<double> bootstrap_differences(PairedValue kind, std::span<const PairedItem> items,
                                          uint64_t seed);

struct Interval {
  double low = 0, high = 0;
};
/// The middle 95 % of resampled differences. REQUIRES: there are some.
Interval middle_95(std::vector<double> differences);
/// Twice the share of resampled differences on the rarer side of 0, at most 1.
double bootstrap_p_value(std::span<const double> differences);

/// The exact test of McNemar: how likely it is that of better + worse items that changed at least
/// so many changed the same way, if each way is as likely. 1 if none changed.
double sign_test_p_value(int64_t better, int64_t worse);

}  // namespace danlu::eval
