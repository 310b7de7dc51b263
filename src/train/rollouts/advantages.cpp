#include "train/rollouts/advantages.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/error.h"

namespace danlu::train {
namespace {

constexpr double kSmall = 1e-4;
constexpr double kTiny = 1e-8;  // of GDPO

struct Moments {
  double mean = 0, deviation = 0;
  int64_t count = 0;
};

using Values = std::span<const std::optional<double>>;

/// Whether those that are there are all one number.
bool are_equal(Values values) {
  std::optional<double> first;
  return std::all_of(values.begin(), values.end(), [&](const std::optional<double>& value) {
    if (value && !first) first = value;
    return !value || *value == *first;
  });
}

Moments moments_of(Values values) {
  Moments result;
  for (const auto& value : values) {
    if (!value) continue;
    result.mean += *value;
    ++result.count;
  }
  if (result.count == 0) return result;
  // A sum's rounding would make equal numbers differ from their mean.
  if (are_equal(values)) {
    result.mean = **std::find_if(values.begin(), values.end(),
                                 [](const auto& value) { return value.has_value(); });
    return result;
  }
  result.mean /= static_cast<double>(result.count);
  for (const auto& value : values) {
    if (value) result.deviation += (*value - result.mean) * (*value - result.mean);
  }
  result.deviation =
      result.count > 1 ? std::sqrt(result.deviation / static_cast<double>(result.count - 1)) : 0;
  return result;
}

void for_each_group(const RewardGroups& groups,
                    const std::function<void(size_t begin, Values)>& visit) {
  const auto size = static_cast<size_t>(groups.size);
  if (size == 0 || groups.rewards.size() % size != 0)
    throw InternalError("[advantages] groups are of one size");
  for (size_t begin = 0; begin < groups.rewards.size(); begin += size)
    visit(begin, Values(groups.rewards).subspan(begin, size));
}

std::vector<double> centred(const RewardGroups& groups) {
  std::vector<double> result(groups.rewards.size(), 0.0);
  for_each_group(groups, [&](size_t begin, Values rewards) {
    const Moments group = moments_of(rewards);
    for (size_t i = 0; i < rewards.size(); ++i) {
      if (rewards[i]) result[begin + i] = *rewards[i] - group.mean;
    }
  });
  return result;
}

void divide(const RewardGroups& groups, settings::RewardScale scale, std::vector<double>& values) {
  if (scale == settings::RewardScale::kNone) return;
  const double of_all = moments_of(groups.rewards).deviation;
  for_each_group(groups, [&](size_t begin, Values rewards) {
    const double deviation =
        scale == settings::RewardScale::kBatch ? of_all : moments_of(rewards).deviation;
    for (size_t i = 0; i < rewards.size(); ++i) values[begin + i] /= deviation + kSmall;
  });
}

/// Each answer less the mean of the others that were judged: n / (n - 1) times less its own mean.
void leave_out(const RewardGroups& groups, std::vector<double>& values) {
  for_each_group(groups, [&](size_t begin, Values rewards) {
    const auto n = static_cast<double>(moments_of(rewards).count);
    for (size_t i = 0; i < rewards.size(); ++i) values[begin + i] *= n > 1 ? n / (n - 1) : 0;
  });
}

/// Every token of an answer has the answer's value.
std::vector<double> whitened_over_tokens(const RewardGroups& groups,
                                         std::span<const int64_t> tokens,
                                         const std::vector<double>& values) {
  std::vector<double> of_tokens;
  for (size_t i = 0; i < values.size(); ++i) {
    if (groups.rewards[i])
      of_tokens.insert(of_tokens.end(), static_cast<size_t>(tokens[i]), values[i]);
  }
  const std::vector<double> white = whitened(std::move(of_tokens));
  std::vector<double> result(values.size(), 0.0);
  size_t at = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    if (!groups.rewards[i] || tokens[i] == 0) continue;
    result[i] = white[at];
    at += static_cast<size_t>(tokens[i]);
  }
  return result;
}

/// Values of the answers that were judged, as rewards of the same groups.
RewardGroups as_rewards(const RewardGroups& groups, const std::vector<double>& values) {
  RewardGroups result = groups;
  for (size_t i = 0; i < values.size(); ++i) {
    if (result.rewards[i]) result.rewards[i] = values[i];
  }
  return result;
}

std::vector<double> plain(const RewardGroups& groups) {
  std::vector<double> result;
  for (const auto& reward : groups.rewards) result.push_back(reward.value_or(0));
  return result;
}

}  // namespace

RewardSpread spread_of(const RewardGroups& groups) {
  RewardSpread spread;
  spread.mean = moments_of(groups.rewards).mean;
  int64_t count = 0;
  for_each_group(groups, [&](size_t, Values rewards) {
    const Moments group = moments_of(rewards);
    spread.deviation += group.deviation;
    spread.unjudged += static_cast<int64_t>(rewards.size()) - group.count;
    ++count;
  });
  if (count > 0) spread.deviation /= static_cast<double>(count);
  return spread;
}

bool compares_each_rule(const settings::Reinforcement& told) {
  return told.advantage == settings::Advantage::kGroup &&
         told.scale == settings::RewardScale::kEachRule;
}

std::vector<bool> groups_that_differ(const std::vector<std::vector<std::optional<double>>>& scores,
                                     const settings::Reinforcement& told) {
  std::vector<std::vector<std::optional<double>>> compared;
  if (compares_each_rule(told)) {
    for (size_t rule = 0; rule < scores.size(); ++rule) {
      const bool counts = told.reward_weights.empty() || told.reward_weights.at(rule) != 0;
      if (counts) compared.push_back(scores[rule]);
    }
  } else {
    compared.push_back(weighted_rewards(scores, told.reward_weights));
  }
  const auto size = static_cast<size_t>(told.answers);
  std::vector<bool> differ(scores.at(0).size() / size);
  for (const auto& values : compared) {
    for_each_group({values, told.answers}, [&](size_t begin, Values group) {
      if (!are_equal(group)) differ[begin / size] = true;
    });
  }
  return differ;
}

std::vector<double> advantages(const RewardGroups& groups, std::span<const int64_t> tokens,
                               settings::Advantage kind, settings::RewardScale scale) {
  if (tokens.size() != groups.rewards.size())
    throw InternalError("[advantages] tokens are counted of every answer");
  if (kind == settings::Advantage::kWhitened)
    return whitened_over_tokens(groups, tokens, plain(groups));
  std::vector<double> values = centred(groups);
  switch (kind) {
    case settings::Advantage::kLeaveOut:
      leave_out(groups, values);
      divide(groups, scale, values);
      break;
    case settings::Advantage::kCentred:
      divide(as_rewards(groups, values), scale, values);
      break;
    case settings::Advantage::kBaselined:
      return whitened_over_tokens(groups, tokens, values);
    default:
      divide(groups, scale, values);
  }
  return values;
}

std::vector<double> advantages_by_rule(
    const std::vector<std::vector<std::optional<double>>>& scores, std::span<const double> weights,
    int64_t size) {
  std::vector<std::vector<std::optional<double>>> of_rules;
  for (const auto& of_rule : scores) {
    const RewardGroups groups{of_rule, size};
    std::vector<double> values = centred(groups);
    for_each_group(groups, [&](size_t begin, Values group) {
      const double deviation = moments_of(group).deviation;
      for (size_t i = 0; i < group.size(); ++i) values[begin + i] /= deviation + kTiny;
    });
    auto& kept = of_rules.emplace_back(of_rule);
    for (size_t i = 0; i < kept.size(); ++i) {
      if (kept[i]) kept[i] = values[i];
    }
  }
  const std::vector<std::optional<double>> sums = weighted_rewards(of_rules, weights);
  const Moments all = moments_of(sums);
  std::vector<double> worth;
  for (const auto& sum : sums)
    worth.push_back(sum ? (*sum - all.mean) / (all.deviation + kTiny) : 0);
  return worth;
}

std::vector<std::optional<double>> weighted_rewards(
    const std::vector<std::vector<std::optional<double>>>& scores,
    std::span<const double> weights) {
  if (scores.empty() || (!weights.empty() && weights.size() != scores.size()))
    throw InternalError("[advantages] weights are of every rule");
  std::vector<std::optional<double>> rewards(scores[0].size());
  for (size_t rule = 0; rule < scores.size(); ++rule) {
    const double weight = weights.empty() ? 1 : weights[rule];
    for (size_t i = 0; i < rewards.size(); ++i) {
      const auto& score = scores[rule].at(i);
      if (score) rewards[i] = rewards[i].value_or(0) + weight * *score;
    }
  }
  return rewards;
}

Estimate generalised_advantages(std::span<const double> rewards_T, std::span<const double> values_T,
                                double gamma, double lambda) {
  const size_t count = rewards_T.size();
  Estimate estimate{std::vector<double>(count), std::vector<double>(count)};
  double advantage = 0, next_value = 0;
  for (size_t t = count; t-- > 0;) {
    advantage = rewards_T[t] + gamma * next_value - values_T[t] + gamma * lambda * advantage;
    next_value = values_T[t];
    estimate.advantages[t] = advantage;
    estimate.returns[t] = advantage + values_T[t];
  }
  return estimate;
}

std::vector<double> discounted_returns(std::span<const double> rewards_T, double gamma) {
  std::vector<double> returns(rewards_T.size());
  double sum = 0;
  for (size_t t = returns.size(); t-- > 0;) returns[t] = sum = rewards_T[t] + gamma * sum;
  return returns;
}

std::vector<double> whitened(std::vector<double> values) {
  if (values.empty()) return values;
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  if (*least == *most) return std::vector<double>(values.size());
  const auto count = static_cast<double>(values.size());
  double mean = 0, variance = 0;
  for (const double value : values) mean += value / count;
  for (const double value : values) variance += (value - mean) * (value - mean);
  variance /= std::max(1.0, count - 1);
  for (double& value : values) value = (value - mean) / std::sqrt(variance + 1e-8);
  return values;
}

}  // namespace danlu::train
