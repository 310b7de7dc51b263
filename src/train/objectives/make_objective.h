// train/objectives/make_objective.h: the objective that a configuration describes.
#pragma once
#include <memory>

#include "settings/objective_config.h"
#include "text/tokenizer.h"
#include "train/objective.h"
#include "train/objectives/reference.h"

namespace danlu::train {

/// reference: as of preference_objective. tokenizer: of the model; only names of tokens need it.
/// Errors: UsageError for a name of a token that the tokenizer gives several, or no tokenizer.
std::shared_ptr<const Objective> make_objective(const settings::ObjectiveConfig& config,
                                                const std::shared_ptr<const FrozenModel>& reference,
                                                const text::Tokenizer* tokenizer);

}  // namespace danlu::train
