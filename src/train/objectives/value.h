// train/objectives/value.h: what a critic learns: the worth of an answer before each of its tokens.
#pragma once
#include <ATen/core/Tensor.h>

#include <memory>

#include "train/objective.h"
#include "train/objectives/drawn_tokens.h"

namespace danlu::train {

/// Names of data::Sample::token_columns, as those of train/objectives/policy.h.
inline constexpr const char* kReturnColumn = "return";
inline constexpr const char* kValueColumn = "value";  ///< when the answer was drawn

/// f64 [M] with grad: the head's number where each token is predicted, before it is there.
/// hidden_nH: what critic.forward(input) gave. REQUIRES: a critic whose head gives one number.
at::Tensor token_values(const models::CausalLM& critic, const at::Tensor& hidden_nH,
                        const models::ForwardInput& input, const at::Tensor& rows_M);

/// weight × ½ max((v − R)², (v within clip of what it was − R)²) of each token of the answers; the
/// weight of a batch is their number. Metrics: loss/value_avg (without the factor `weight`),
/// val/clipfrac_avg. Source: TRL, verl; the mean spans the whole step.
std::shared_ptr<const Objective> value_objective(double weight, double clip);

}  // namespace danlu::train
