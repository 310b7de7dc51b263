// train/objectives/policy.h: the loss of answers that were drawn and judged: GRPO and its
// relatives, PPO's policy.
#pragma once
#include <memory>

#include "settings/reinforcement.h"
#include "train/objective.h"
#include "train/objectives/reference.h"

namespace danlu::train {

/// Names of data::Sample::token_columns. Each value stands where the token that it belongs to is
/// predicted; elsewhere it is not read.
inline constexpr const char* kAdvantageColumn = "advantage";
/// Log-probabilities when the answer was drawn. Without the column the policy is its own old one:
/// the ratio is 1, and its gradient is that of the log-probability.
inline constexpr const char* kOldColumn = "old";
/// The column of the reference's log-probabilities, for the KL term. Without it the reference is
/// asked before each step.
inline constexpr const char* kReferenceColumn = "reference";

/// 0 in answers whose distance to the reference is not learnt from either, else 1. Without the
/// column it is.
inline constexpr const char* kDistanceColumn = "distance";
/// 1 for each token that a mean over tokens is divided by, target or not. Without the column these
/// are the targets.
inline constexpr const char* kCountColumn = "count";

/// What each of M tokens adds by its ratio, as settings::RatioGate says: f64 [M] with grad.
at::Tensor gated_losses(const settings::PolicyLoss& settings, const at::Tensor& ratio_M,
                        const at::Tensor& logprobs_M, const at::Tensor& advantage_M);

/// Over answers, each a segment whose targets are its tokens: gated_losses + kl k3, with k3 =
/// exp(d) - d - 1 for d = log-probability of the reference less that of the policy. Metrics: kl,
/// entropy, and of kClip clip_ratio/low_mean, clip_ratio/high_mean, clip_ratio/region_mean, of
/// kWeight cispo_clip_ratio.
/// Source: TRL's GRPO trainer; what the mean is over spans the whole step.
/// reference: of the KL term; nullptr: the policy without adapters.
std::shared_ptr<const Objective> policy_objective(
    const settings::PolicyLoss& settings,
    const std::shared_ptr<const FrozenModel>& reference = nullptr);

}  // namespace danlu::train
