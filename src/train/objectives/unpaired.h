// train/objectives/unpaired.h: KTO: answers that are liked and answers that are not, without pairs.
#pragma once
#include <memory>

#include "settings/objective_config.h"
#include "train/objective.h"
#include "train/objectives/reference.h"

namespace danlu::train {

/// Over data::Sample of two segments: prompt and answer, then the same prompt with another row's
/// answer; the value of the first is 1 where the answer is liked. Only first segments are trained
/// on. From the second ones follows z, how far the policy has drifted from the reference: the mean
/// of their log-ratios over the whole step, of all ranks, before it and without gradient, and at
/// least 0. So the loss does not depend on the cut of a step. It is divided by the number of
/// samples.
/// reference: as of preference_objective. Errors: as there.
std::shared_ptr<const Objective> unpaired_objective(
    const settings::UnpairedConfig& config, std::shared_ptr<const FrozenModel> reference = {});

}  // namespace danlu::train
