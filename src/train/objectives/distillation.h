// train/objectives/distillation.h: to give tokens the probabilities that a teacher gives them.
#pragma once
#include <memory>

#include "settings/objective_config.h"
#include "train/objective.h"
#include "train/objectives/reference.h"

namespace danlu::train {

/// A column of batches whose answers the model drew itself; what it holds does not matter.
inline constexpr const char* kDrawnColumn = "drawn";

/// The mean over targets of the divergence of the teacher's and the model's distributions
/// (ops/head_divergence.h), and with sft_alpha > 0 so many times −log p of the target, of batches
/// without kDrawnColumn. Metrics, with that weight alone: divergence, sft_loss. teacher: on
/// the mesh of the policy; its passes come before the step's. Collective where the teacher's
/// parameters are shared.
std::shared_ptr<const Objective> distillation_objective(const settings::DistillationConfig& config,
                                                        std::shared_ptr<const FrozenModel> teacher);

}  // namespace danlu::train
