// train/objective.h: what a pass is for: from the hidden states of the last stage to a scalar.
#pragma once
#include "data/batch.h"
#include "models/causal_lm.h"

namespace danlu::train {

/// A sum and the weight that it is divided by, over all micro-batches and ranks of a step: never a
/// mean of means.
struct Loss {
  at::Tensor sum;      ///< scalar with grad
  at::Tensor correct;  ///< scalar, of the weight: predicted right
  at::Tensor scale;    ///< as evaluate was given it: what a backward of `sum` begins with
};

class Objective {
 public:
  virtual ~Objective() = default;
  /// What a batch weighs, known before any pass. 0: it trains nothing, and is not passed.
  virtual double weight(const data::Batch& batch) const = 0;
  /// `policy`: the last stage. hidden_nH: what its forward() gave for `input`, of `batch`. scale:
  /// the factor that will be put on the sum before backward. Collective as the policy's passes.
  virtual Loss evaluate(const models::CausalLM& policy, const at::Tensor& hidden_nH,
                        const models::ForwardInput& input, const data::Batch& batch,
                        double scale) const = 0;
};

/// Cross-entropy of the next token, over tokens that are targets.
const Objective& language_modelling();

/// What this rank of the context axis holds of a batch, which all of that axis have; alone: all.
data::Batch own_part(const parallel::Mesh& mesh, const data::Batch& batch);

/// A batch as a pass takes it, on the model's device; a view of the batch's memory, which is kept
/// until the pass is over. dropout_seed: of the step; adapters drop as their config says.
models::ForwardInput training_input(const models::CausalLM& model, const data::Batch& batch,
                                    uint64_t dropout_seed);
/// The same without dropout.
models::ForwardInput evaluation_input(const models::CausalLM& model, const data::Batch& batch);

}  // namespace danlu::train
