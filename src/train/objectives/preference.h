// train/objectives/preference.h: of two answers to a prompt the chosen one is to be likelier: DPO
// and its kin, SimPO, CPO and ORPO as one objective that data describe.
#pragma once
#include <memory>

#include "settings/objective_config.h"
#include "train/objective.h"
#include "train/objectives/reference.h"

namespace danlu::train {

/// Over data::Sample of two segments, the chosen answer and then the rejected one, whose labels
/// are the answers' tokens. The loss is divided by the number of pairs of the whole step; a
/// likelihood term that is a mean over tokens is one over all of the step's.
/// reference: nullptr: the policy without its adapters, if the configuration has a reference.
/// Errors of prepare(): DataError where samples are no pairs, or an answer has no token.
std::shared_ptr<const Objective> preference_objective(
    const settings::PreferenceConfig& config, std::shared_ptr<const FrozenModel> reference = {});

}  // namespace danlu::train
