// train/objectives/reward.h: of two answers to a prompt the chosen one is to get more from a model
// whose head gives a number for a text.
#pragma once
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "settings/objective_config.h"
#include "train/objective.h"

namespace danlu::train {

/// Over data::Sample of two segments, the chosen answer and then the rejected one: −log σ(chosen −
/// rejected − margin) + centring (chosen + rejected)², where the number of a segment is the head's
/// at its last token, and the margin the value of the first segment. The loss is divided by the
/// number of pairs of the whole step.
/// Metrics: accuracy (ties count as wrong), margin, mean_reward, rewards/chosen, rewards/rejected.
/// Source: TRL's reward trainer.
/// Errors of prepare(): DataError where samples are no pairs, or an answer has no token.
std::shared_ptr<const Objective> reward_objective(const settings::RewardConfig& config);

/// The last tokens of segments that are here: their rows in the pass, and which segment's each is.
std::pair<std::vector<int64_t>, std::vector<int64_t>> last_tokens(const data::Batch& batch);

/// The tokens of segments that the head of `model` reads, likewise: the last ones, of an encoder
/// the first ones.
std::pair<std::vector<int64_t>, std::vector<int64_t>> read_tokens(const arch::ModelConfig& model,
                                                                  const data::Batch& batch);

/// What the head of `model` gives for each of the batch's S segments, at the token that it reads:
/// f64 [S, labels] with grad. ids: the logits of these tokens instead, [S, ids], of a model with a
/// head of the vocabulary. hidden_nH: what model.forward(input) gave on the last stage. On a
/// context axis every rank gets the numbers of whole segments.
at::Tensor segment_numbers(const models::CausalLM& model, const at::Tensor& hidden_nH,
                           const models::ForwardInput& input, const data::Batch& batch,
                           const std::vector<int64_t>& ids = {});
/// The same as [S]. REQUIRES: a head of one number.
at::Tensor segment_scores(const models::CausalLM& model, const at::Tensor& hidden_nH,
                          const models::ForwardInput& input, const data::Batch& batch);

}  // namespace danlu::train
