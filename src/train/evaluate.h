// train/evaluate.h: loss and metrics over held-out data.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "data/batch.h"
#include "data/sample_source.h"
#include "models/causal_lm.h"
#include "train/objective.h"

namespace danlu::train {

struct EvaluationSettings {
  int64_t batch_size = 1;   ///< samples of a batch
  int64_t max_tokens = 0;   ///< > 0: regroup samples into batches of at most so many tokens
  int64_t max_batches = 0;  ///< 0: all
  std::function<void(int64_t num_batches)> on_start = {};
};

struct Evaluation {
  double loss = 0;  ///< the objective's sum / weight over everything
  std::map<std::string, double> metrics;
  int64_t num_samples = 0;
  double weight = 0;
  double seconds = 0;
};

/// No gradients, no dropout. Deterministic. Ranks of the data axis share the samples, and all come
/// to the same. Errors: DataError if nothing of them weighs anything. The loss may be infinite or
/// NaN.
Evaluation evaluate(const models::CausalLM& model, const Objective& objective,
                    std::shared_ptr<const data::SampleSource> samples,
                    const EvaluationSettings& settings);

/// Loss of one batch, as evaluate; on every stage of a pipeline. Of those that this rank of the
/// context axis has; 0 where it has none.
double loss_of(const models::CausalLM& model, const Objective& objective, const data::Batch& batch);

}  // namespace danlu::train
