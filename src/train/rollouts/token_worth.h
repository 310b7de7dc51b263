// train/rollouts/token_worth.h: what each token of drawn answers is worth to PPO.
#pragma once
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "settings/reinforcement.h"
#include "train/rollouts/drawn_answers.h"

namespace danlu::train {

/// One number for each token of an answer.
struct TokenWorth {
  std::vector<double> advantages;  ///< whitened over all answers' tokens
  std::vector<double> returns;     ///< what the critic is to expect before the token
};

/// A token's reward is -kl (old - reference), and the last one's also the answer's reward, less
/// missing_end_penalty where it was cut; with whitens_rewards all of them are divided by their
/// deviation, about their mean. Answers that nothing judged, and with masks_truncated those that
/// were cut, are worth nothing, shift nothing, and their returns are the values that they have.
/// Source: verl, MindSpeed-LLM. (TRL gives the reward one position later.) figures: gets
/// objective/kl (of an answer), objective/non_score_reward, objective/scores and
/// objective/rlhf_reward. REQUIRES: every answer has `values`, and `old` and `reference` if
/// critic.kl > 0.
std::vector<TokenWorth> worth_of_tokens(const std::vector<DrawnAnswer>& answers,
                                        std::span<const std::optional<double>> rewards,
                                        const settings::Critic& critic, bool masks_truncated,
                                        std::map<std::string, double>& figures);

}  // namespace danlu::train
