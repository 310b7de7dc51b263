// train/evaluate.h: loss and token accuracy over held-out data.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>

#include "data/batch.h"
#include "data/sample_source.h"
#include "models/causal_lm.h"

namespace danlu::train {

struct EvaluationSettings {
  int64_t batch_size = 1;   ///< samples of a batch
  int64_t max_tokens = 0;   ///< > 0: regroup samples into batches of at most so many tokens
  int64_t max_batches = 0;  ///< 0: all
  std::function<void(int64_t num_batches)> on_start = {};
};

struct Evaluation {
  double loss = 0;  ///< summed token losses / targets over everything
  double token_accuracy = -1;
  int64_t num_samples = 0, num_targets = 0;
  double seconds = 0;
};

/// No gradients, no dropout. Deterministic. Ranks of the data axis share the samples, and all come
/// to the same. Errors: DataError if no token is a target. The loss may be infinite or NaN.
Evaluation evaluate(const models::CausalLM& model,
                    std::shared_ptr<const data::SampleSource> samples,
                    const EvaluationSettings& settings);

/// Mean loss of the tokens of one batch that are targets, as evaluate; on every stage of a
/// pipeline. Of those that this rank of the context axis has; 0 where it has none.
double loss_of(const models::CausalLM& model, const data::Batch& batch);

}  // namespace danlu::train
