#include "train/rollouts/answer_samples.h"

#include <algorithm>
#include <utility>

#include "train/objectives/policy.h"
#include "train/objectives/value.h"
#include "train/rollouts/advantages.h"
#include "train/rollouts/answer_passes.h"
#include "train/rollouts/token_worth.h"

namespace danlu::train {
namespace {

std::vector<double> as_doubles(const std::vector<float>& numbers) {
  return {numbers.begin(), numbers.end()};
}

/// 1 for each token that the policy drew.
std::vector<double> drawn_ones(const DrawnAnswer& answer) {
  std::vector<double> ones;
  for (size_t t = 0; t < answer.ids.size(); ++t) ones.push_back(answer.has_drawn(t) ? 1 : 0);
  return ones;
}

/// Which answers were cut at the limit and are left out for it.
struct CutAnswers {
  std::vector<bool> is_masked;
  /// Answers of steps that were all cut. A step needs something to divide by: they stay in, are
  /// worth nothing, and their distance to the reference does not count.
  std::vector<bool> is_of_cut_step;
};

CutAnswers cut_answers(const std::vector<DrawnAnswer>& answers, bool masks_truncated,
                       int64_t samples_of_step) {
  const size_t count = answers.size(), of_step = static_cast<size_t>(samples_of_step);
  CutAnswers cut{std::vector<bool>(count), std::vector<bool>(count)};
  if (!masks_truncated) return cut;
  for (size_t i = 0; i < count; ++i) {
    const auto begin = answers.begin() + static_cast<std::ptrdiff_t>(i / of_step * of_step);
    const bool all_cut = std::none_of(begin, begin + static_cast<std::ptrdiff_t>(of_step),
                                      [](const DrawnAnswer& answer) { return answer.is_ended; });
    cut.is_of_cut_step[i] = all_cut;
    cut.is_masked[i] = !answers[i].is_ended && !all_cut;
  }
  return cut;
}

LearntAnswers learnt_by_critic(const settings::Reinforcement& told, const CutAnswers& cut,
                               const std::vector<DrawnAnswer>& answers,
                               const std::vector<std::optional<double>>& rewards) {
  LearntAnswers learnt;
  const std::vector<TokenWorth> worth =
      worth_of_tokens(answers, rewards, told.critic, told.masks_truncated, learnt.figures);
  for (size_t i = 0; i < answers.size(); ++i) {
    const DrawnAnswer& answer = answers[i];
    data::Sample& sample = learnt.samples.emplace_back(sample_of(answer, cut.is_masked[i]));
    set_column(answer, kAdvantageColumn, worth[i].advantages, sample);
    set_column(answer, kReturnColumn, worth[i].returns, sample);
    set_column(answer, kValueColumn, as_doubles(answer.values), sample);
    double sum = 0;
    for (const double advantage : worth[i].advantages) sum += advantage;
    learnt.advantages.push_back(sum / static_cast<double>(answer.ids.size()));
  }
  return learnt;
}

/// Takes the distance to the reference off the rewards (told.reward_kl). Gives its mean.
double take_distances(const std::vector<DrawnAnswer>& answers, double weight,
                      std::vector<std::optional<double>>& rewards) {
  double sum = 0;
  for (size_t i = 0; i < answers.size(); ++i) {
    double distance = 0;
    for (size_t t = 0; t < answers[i].ids.size(); ++t) {
      if (!answers[i].has_drawn(t)) continue;
      distance += static_cast<double>(answers[i].old.at(t)) - answers[i].reference.at(t);
    }
    sum += distance;
    if (rewards[i]) *rewards[i] -= weight * distance;
  }
  return sum / static_cast<double>(answers.size());
}

}  // namespace

void examine(const RolloutParts& parts, const RolloutSettings& settings,
             std::vector<DrawnAnswer>& own) {
  const settings::Reinforcement& told = settings.told;
  const auto logprobs = logprobs_at(told.loss.temperature);
  const ForwardPasses passes(parts.policy, parts.links);
  // What several rollouts drew has the log-probabilities of each.
  if (!settings.draws_in_parts() &&
      (settings.steps_of_rollout() > 1 || told.has_critic() || told.reward_kl > 0))
    find_for_tokens(passes, /*adapters=*/true, logprobs, &DrawnAnswer::old, own);
  // Passes after the first would ask for the same numbers again.
  const bool is_seen_again = told.loss.kl > 0 && told.iterations > 1;
  if (told.kl_of_rewards() > 0 || is_seen_again) {
    ask_reference(parts.reference.get(), passes, [&](const ForwardPasses& of, bool adapters) {
      find_for_tokens(of, adapters, logprobs, &DrawnAnswer::reference, own);
    });
  }
  if (told.has_critic()) parts.critic->find_values(parts.policy, own);
}

LearntAnswers learnt_from(const settings::Reinforcement& told, int64_t samples_of_step,
                          const std::vector<DrawnAnswer>& answers,
                          const std::vector<std::vector<std::optional<double>>>& scores,
                          const std::vector<std::optional<double>>& rewards) {
  const CutAnswers cut = cut_answers(answers, told.masks_truncated, samples_of_step);
  if (told.has_critic()) return learnt_by_critic(told, cut, answers, rewards);
  LearntAnswers learnt;
  std::vector<int64_t> tokens;
  for (const DrawnAnswer& answer : answers) tokens.push_back(answer.num_drawn());
  RewardGroups groups{rewards, told.answers};
  if (told.reward_kl > 0)
    learnt.figures["kl"] = take_distances(answers, told.reward_kl, groups.rewards);
  learnt.advantages = compares_each_rule(told)
                          ? advantages_by_rule(scores, told.reward_weights, told.answers)
                          : advantages(groups, tokens, told.advantage, told.scale);
  for (size_t i = 0; i < answers.size(); ++i) {
    data::Sample& sample = learnt.samples.emplace_back(sample_of(answers[i], cut.is_masked[i]));
    const std::vector<float>& reference = answers[i].reference;
    if (told.loss.kl > 0 && !reference.empty())
      set_column(answers[i], kReferenceColumn, as_doubles(reference), sample);
    const bool is_worthless = cut.is_of_cut_step[i];
    const double worth = is_worthless ? 0 : learnt.advantages[i];
    sample.token_columns[kAdvantageColumn].assign(sample.ids.size(), static_cast<float>(worth));
    if (is_worthless) sample.token_columns[kDistanceColumn].assign(sample.ids.size(), 0.0F);
    if (told.masks_truncated && told.loss.counts_cut)
      set_column(answers[i], kCountColumn, drawn_ones(answers[i]), sample);
  }
  return learnt;
}

}  // namespace danlu::train
