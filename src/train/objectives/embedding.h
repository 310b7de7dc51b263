// train/objectives/embedding.h: vectors of texts that fit each other are to be near.
#pragma once
#include <memory>

#include "settings/objective_config.h"
#include "train/objective.h"

namespace danlu::train {

/// Over data::Sample of groups (data/groups.h): the loss that settings::EmbeddingConfig says, of
/// the hidden states behind the final norm at each text's last token, at length one. It is divided
/// by the number of rows of the whole step; kHardMargin's, a sum over a micro-batch, by that of
/// micro-batches.
///
/// With in_batch the micro-batches of all ranks of the data axis that are passed at once are one:
/// their vectors are gathered, and each rank has the gradient of the whole loss for its own texts.
///
/// Metrics: of kContrast margin, how much nearer the positive is than the nearest other text,
/// mean_pos and mean_neg, the mean cosines with either; of kCosine mae, the mean distance of
/// cosines from labels; else mean_pos and mean_neg of pairs with label 1 and 0. Errors of
/// prepare(): DataError where samples are no groups with an anchor, or a pair has other texts.
std::shared_ptr<const Objective> embedding_objective(const settings::EmbeddingConfig& config);

/// What the model makes of each of the batch's S segments: the hidden state behind the final norm
/// at its last token, of an encoder as its Pooling says, f64 [S, H] with grad. On a context axis
/// every rank gets those of whole segments.
at::Tensor segment_vectors(const models::CausalLM& model, const at::Tensor& hidden_nH,
                           const models::ForwardInput& input, const data::Batch& batch);

}  // namespace danlu::train
