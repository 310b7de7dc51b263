// train/objectives/step_scores.h: how right each step of a text is, told by a model that was
// trained to judge steps (process_reward.h).
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "train/objectives/reference.h"

namespace danlu::train {

/// A text, and where in it steps end, ascending.
struct JudgedText {
  std::vector<int32_t> ids;
  std::vector<size_t> places;
};

/// For each text the probabilities that its steps are right. Of a head of two classes that of class
/// 1. Else that of reward_ids[0] among reward_ids, by the logits at the step's place, as
/// process_reward_objective trains it. All texts go through one pass.
std::vector<std::vector<double>> step_scores(const FrozenModel& judge,
                                             std::span<const JudgedText> texts,
                                             std::span<const int64_t> reward_ids);

}  // namespace danlu::train
