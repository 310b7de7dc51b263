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
  int64_t batch_size = 1;   ///< samples in a batch
  int64_t max_tokens = 0;   ///< > 0: regroup samples into batches of at most so many tokens
  int64_t max_batches = 0;  ///< 0: all
  std::shared_ptr<data::MediaLoader> media = {};  ///< of samples with pictures
  std::function<void(int64_t num_batches)> on_start = {};
};

struct Evaluation {
  double loss = 0;  ///< the objective's sum / weight over everything
  /// Answers to held-out prompts were judged: the loss is less than 0 by their mean reward, and the
  /// metrics have the reward; infinite if none was judged.
  bool is_of_rewards = false;
  std::map<std::string, double> metrics;
  int64_t num_samples = 0;
  double weight = 0;
  double seconds = 0;
};

/// Evaluates without gradients and dropout; the result is deterministic. Ranks of the data axis
/// divide the samples, and all ranks get the same result. The loss may be infinite or NaN. Errors:
/// DataError if no sample weighs anything.
Evaluation evaluate(const models::CausalLM& model, const Objective& objective,
                    std::shared_ptr<const data::SampleSource> samples,
                    const EvaluationSettings& settings);

/// The loss of one batch, without gradients and dropout, on every stage of a pipeline. On a context
/// axis it is that of this rank's part of the batch; 0 if that part weighs nothing.
/// nullptr: this rank has no batch, while others of the data axis may; it gives 0.
double loss_of(const models::CausalLM& model, const Objective& objective, const data::Batch* batch);

}  // namespace danlu::train
