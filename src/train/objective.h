// train/objective.h: what a pass is for: from the hidden states of the last stage to a scalar.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "data/batch.h"
#include "models/causal_lm.h"
#include "train/forward_passes.h"
#include "train/metrics.h"

namespace danlu::train {

/// Of the passes of one micro-batch through the last stage.
struct Loss {
  /// Scalar with grad, to be divided by the weight of all micro-batches and ranks of a step: never
  /// a mean of means. On ranks of the context axis a part of the whole; of what the whole is
  /// needed for, its value is on the axis' first rank and its gradient on all.
  at::Tensor sum;
  at::Tensor scale;  ///< as evaluate was given it: what a backward of `sum` begins with
  std::map<std::string, PassMetric> metrics = {};  ///< those that Objective::metrics names
};

/// What prepare() found for a micro-batch, by names that the objective chooses.
using Columns = std::map<std::string, at::Tensor>;

class Objective {
 public:
  virtual ~Objective() = default;
  /// Of the metrics that evaluate() gives. Every rank has the same.
  virtual std::vector<std::string> metrics() const = 0;
  /// What a batch weighs, known before any pass. 0: it trains nothing, and is not passed.
  virtual double weight(const data::Batch& batch) const = 0;
  /// Passes before those that are evaluated, such as a reference model's. batches: what this rank
  /// has of those that weigh anything. The result is as long, with what the last stage found.
  /// Collective as the passes.
  virtual std::vector<Columns> prepare(const ForwardPasses& passes,
                                       const std::vector<const data::Batch*>& batches) const;
  /// `policy`: the last stage. hidden_nH: what its forward() gave for `input`, of `batch`. columns:
  /// what prepare() found for it. scale: the factor that will be put on the sum before backward.
  /// Collective as the policy's passes.
  virtual Loss evaluate(const models::CausalLM& policy, const at::Tensor& hidden_nH,
                        const models::ForwardInput& input, const data::Batch& batch,
                        const Columns& columns, double scale) const = 0;
};

/// Cross-entropy of the next token, over tokens that are targets; metric: token_acc.
std::shared_ptr<const Objective> language_modelling();

/// The log-probability of each segment's targets, of what forward() gave for `input`, of `batch`,
/// on the last stage: f64 [S] with grad, on every rank of the context axis those of whole segments.
at::Tensor segment_logprobs(const models::CausalLM& policy, const at::Tensor& hidden_nH,
                            const models::ForwardInput& input, const data::Batch& batch);

/// Over all ranks of the policy's mesh: what the objective names, of each rank's passes, and what
/// layers gave, to be divided by `weight`, the objective's of all ranks. Collective.
Metrics metrics_of_all(const Objective& objective, const models::CausalLM& policy,
                       const Metrics& own, const models::PassResults& results, double weight);

}  // namespace danlu::train
