#include "train/rollouts/token_worth.h"

#include <utility>

#include "base/error.h"
#include "train/rollouts/advantages.h"

namespace danlu::train {
namespace {

/// What the tokens of an answer cost by their distance to the reference; and the distance.
std::pair<std::vector<double>, double> distance_rewards(const DrawnAnswer& answer, double kl) {
  std::vector<double> rewards(answer.ids.size(), 0.0);
  double distance = 0;
  for (size_t t = 0; kl > 0 && t < rewards.size(); ++t) {
    const double moved = static_cast<double>(answer.old.at(t)) - answer.reference.at(t);
    rewards[t] = -kl * moved;
    distance += moved;
  }
  return {std::move(rewards), distance};
}

/// Puts the whitened advantages of answers that are learnt from where they were.
void whiten(const std::vector<bool>& is_learnt, std::vector<TokenWorth>& worth) {
  std::vector<double> all;
  for (size_t i = 0; i < worth.size(); ++i) {
    if (is_learnt[i]) all.insert(all.end(), worth[i].advantages.begin(), worth[i].advantages.end());
  }
  const std::vector<double> white = whitened(std::move(all));
  size_t next = 0;
  for (size_t i = 0; i < worth.size(); ++i) {
    for (double& advantage : worth[i].advantages) advantage = is_learnt[i] ? white[next++] : 0;
  }
}

/// The rewards of all tokens divided by their deviation, about their mean,
/// which stays (TRL).
void whiten_rewards(std::vector<std::vector<double>>& of_answers) {
  std::vector<double> all;
  double mean = 0;
  for (const auto& of_tokens : of_answers)
    all.insert(all.end(), of_tokens.begin(), of_tokens.end());
  for (const double reward : all) mean += reward / static_cast<double>(all.size());
  const std::vector<double> white = whitened(std::move(all));
  size_t next = 0;
  for (auto& of_tokens : of_answers) {
    for (double& reward : of_tokens) reward = white[next++] + mean;
  }
}

}  // namespace

std::vector<TokenWorth> worth_of_tokens(const std::vector<DrawnAnswer>& answers,
                                        std::span<const std::optional<double>> rewards,
                                        const settings::Critic& critic, bool masks_truncated,
                                        std::map<std::string, double>& figures) {
  std::vector<bool> is_learnt;
  std::vector<std::vector<double>> of_learnt;  // the rewards of tokens
  double distance = 0, by_distance = 0, scores = 0, judged = 0;
  for (size_t i = 0; i < answers.size(); ++i) {
    const DrawnAnswer& answer = answers[i];
    if (answer.values.size() != answer.ids.size() || answer.ids.empty())
      throw InternalError("[rollout] a critic has a value for each token of an answer");
    auto [of_tokens, moved] = distance_rewards(answer, critic.kl);
    distance += moved;
    for (const double reward : of_tokens) by_distance += reward;
    is_learnt.push_back(rewards[i] && (answer.is_ended || !masks_truncated));
    if (!rewards[i]) continue;
    const double score = *rewards[i] - (answer.is_ended ? 0 : critic.missing_end_penalty);
    scores += score;
    ++judged;
    of_tokens.back() += score;
    if (is_learnt[i]) of_learnt.push_back(std::move(of_tokens));
  }
  if (critic.whitens_rewards) whiten_rewards(of_learnt);
  std::vector<TokenWorth> worth;
  size_t next = 0;
  for (size_t i = 0; i < answers.size(); ++i) {
    const std::vector<double> values(answers[i].values.begin(), answers[i].values.end());
    if (!is_learnt[i]) {
      worth.push_back({std::vector<double>(values.size(), 0.0), values});
      continue;
    }
    Estimate estimate =
        generalised_advantages(of_learnt[next++], values, critic.gamma, critic.lambda);
    worth.push_back({std::move(estimate.advantages), std::move(estimate.returns)});
  }
  whiten(is_learnt, worth);
  const auto count = static_cast<double>(answers.size());
  if (count == 0) return worth;
  figures["objective/kl"] = distance / count;
  figures["objective/non_score_reward"] = by_distance / count;
  if (judged == 0) return worth;
  figures["objective/scores"] = scores / judged;
  figures["objective/rlhf_reward"] = scores / judged + by_distance / count;
  return worth;
}

}  // namespace danlu::train
