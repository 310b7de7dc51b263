// train/batch_input.h: a batch as a model takes it.
#pragma once
#include "data/batch.h"
#include "models/causal_lm.h"

namespace danlu::train {

/// What this rank of the context axis holds of a batch, which all of that axis have; alone: all.
data::Batch own_part(const parallel::Mesh& mesh, const data::Batch& batch);

/// A batch as a pass takes it, on the model's device; a view of the batch's memory, which is kept
/// until the pass is over. dropout_seed: of the step; adapters drop as their config says.
models::ForwardInput training_input(const models::CausalLM& model, const data::Batch& batch,
                                    uint64_t dropout_seed);
/// The same without dropout.
models::ForwardInput evaluation_input(const models::CausalLM& model, const data::Batch& batch);

}  // namespace danlu::train
