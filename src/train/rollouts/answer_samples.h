// train/rollouts/answer_samples.h: turns judged answers into the samples of steps.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "data/batch.h"
#include "train/rollouts/drawn_answers.h"
#include "train/rollouts/rollout_settings.h"

namespace danlu::train {

/// Answers as steps learn from them.
struct LearntAnswers {
  std::vector<data::Sample> samples;      ///< one of each answer, with the columns of objectives
  std::vector<double> advantages;         ///< of each answer; with a critic means over its tokens
  std::map<std::string, double> figures;  ///< what the comparison shows
};

/// Finds what steps need beside scores: log-probabilities of the policy as it is, of the reference,
/// and what the critic expected. Answers that several rollouts drew have the policy's already.
/// Collective over all ranks.
void examine(const RolloutParts& parts, const RolloutSettings& settings,
             std::vector<DrawnAnswer>& own);

/// answers: of a whole rollout, all ranks', examined. scores: of each rule, and rewards: their
/// weighted sums (train/rollouts/advantages.h).
LearntAnswers learnt_from(const settings::Reinforcement& told, int64_t samples_of_step,
                          const std::vector<DrawnAnswer>& answers,
                          const std::vector<std::vector<std::optional<double>>>& scores,
                          const std::vector<std::optional<double>>& rewards);

}  // namespace danlu::train
