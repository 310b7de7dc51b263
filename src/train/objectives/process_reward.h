// train/objectives/process_reward.h: whether each step of an answer is right, told by the token
// that the model has likeliest at the step's placeholder.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "train/objective.h"

namespace danlu::train {

/// Over data::Sample whose labels_are_targets: at the placeholder after each step the token that
/// the step deserves. The loss is cross-entropy over the logits of reward_ids, or of the whole
/// vocabulary where they are empty, divided by the number of steps. Errors of prepare(): DataError
/// where a step deserves a token that is not in reward_ids.
std::shared_ptr<const Objective> process_reward_objective(const std::vector<int64_t>& reward_ids);

/// Cross-entropy of two classes, which a head gives for a step at its
/// placeholder: 1 for steps that are labelled with `right_id`, 0 for others,
/// which have wrong_id. Its metric is acc.
std::shared_ptr<const Objective> step_class_objective(int64_t right_id, int64_t wrong_id);

}  // namespace danlu::train
