// train/rollouts/advantages.h: from rewards of answers to what each is worth beside the others.
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "settings/reinforcement.h"

namespace danlu::train {

/// Answers [g·size, (g+1)·size) are those to prompt g.
struct RewardGroups {
  std::vector<std::optional<double>> rewards;  ///< of each answer; nothing: it was not judged
  int64_t size = 1;                            ///< answers to each prompt
};

/// How rewards spread, for the log.
struct RewardSpread {
  double mean = 0, deviation = 0;  ///< of judged answers; the mean over groups of deviations
  int64_t unjudged = 0;
};
RewardSpread spread_of(const RewardGroups& groups);

/// Whether answers are compared in each rule's scores by itself, and not in the rewards' sum
/// (GDPO).
bool compares_each_rule(const settings::Reinforcement& told);

/// Which groups of told.answers have something to learn: answers that differ in what is compared,
/// the scores of any rule with a weight where compares_each_rule(told), else the weighted sum.
/// scores: as of weighted_rewards(). REQUIRES: whole groups.
std::vector<bool> groups_that_differ(const std::vector<std::vector<std::optional<double>>>& scores,
                                     const settings::Reinforcement& told);

/// One number for each answer; 0 for those that were not judged. tokens: of each answer, which
/// whitening counts. Deviations are those of samples (n - 1), and 1e-4 is added to them. kWhitened
/// and kBaselined do not read `scale`. Source: TRL, verl; kCentred and a scaled kLeaveOut:
/// ms-swift. REQUIRES: as many tokens as rewards, and whole groups.
std::vector<double> advantages(const RewardGroups& groups, std::span<const int64_t> tokens,
                               settings::Advantage kind, settings::RewardScale scale);

/// The same of each rule by itself: its scores less their mean in the group, divided by their
/// deviation there; weighted, summed, and whitened over all answers that were judged (GDPO). A rule
/// gives nothing for an answer that it cannot judge. Source: ms-swift. scores, weights: as below.
std::vector<double> advantages_by_rule(
    const std::vector<std::vector<std::optional<double>>>& scores, std::span<const double> weights,
    int64_t size);

/// Weighted sums over rules; scores[r][i] is rule r's of answer i. A rule that cannot judge an
/// answer is left out of its sum; an answer that none can judge has no reward.
std::vector<std::optional<double>> weighted_rewards(
    const std::vector<std::vector<std::optional<double>>>& scores, std::span<const double> weights);

/// Generalised advantage estimation over one answer's tokens: rewards_T and values_T of each.
struct Estimate {
  std::vector<double> advantages, returns;
};
Estimate generalised_advantages(std::span<const double> rewards_T, std::span<const double> values_T,
                                double gamma, double lambda);
/// Rewards to come, discounted, of each token.
std::vector<double> discounted_returns(std::span<const double> rewards_T, double gamma);
/// (x - mean) / sqrt(variance + 1e-8) over all of them, with the variance of samples (n - 1).
std::vector<double> whitened(std::vector<double> values);

}  // namespace danlu::train
