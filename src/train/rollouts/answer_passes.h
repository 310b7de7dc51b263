// train/rollouts/answer_passes.h: what models say of each token of drawn answers.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "train/forward_passes.h"
#include "train/rollouts/drawn_answers.h"

namespace danlu::train {

/// The numbers of tokens of an answer, from the hidden states of prompt and answer, or of the part
/// that this rank of the context axis has. rows_M, ids_M: int64, on the host: where these tokens
/// are predicted, and what they are.
using NumbersOfTokens = std::function<at::Tensor(
    const models::CausalLM& model, const at::Tensor& hidden_nH, const models::ForwardInput& input,
    const at::Tensor& rows_M, const at::Tensor& ids_M)>;

/// Puts the numbers of each answer `into` it, on every rank that holds a part of the model.
/// adapters: false: the model without them. Collective like ForwardPasses::run.
void find_for_tokens(const ForwardPasses& passes, bool adapters, const NumbersOfTokens& numbers,
                     std::vector<float> DrawnAnswer::* into, std::vector<DrawnAnswer>& answers);

/// Log-probabilities of tokens at a temperature, as NumbersOfTokens.
NumbersOfTokens logprobs_at(double temperature);

}  // namespace danlu::train
