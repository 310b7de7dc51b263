// train/objective.h: what a training minimises: from the hidden states of the last stage to a
// scalar.
#pragma once
#include <any>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "data/batch.h"
#include "models/causal_lm.h"
#include "train/forward_passes.h"
#include "train/metrics.h"

namespace danlu::train {

/// What the last stage finds for one micro-batch.
struct Loss {
  /// Scalar with grad. The step divides it by the weight of all micro-batches and ranks. Ranks of
  /// the context axis each give a part of the sum. Where a term needs whole sequences, every rank
  /// computes it: the first rank of the axis gives its value, the others 0, and all of them its
  /// gradient.
  at::Tensor sum;
  /// What the backward of `sum` begins with; undefined: evaluate's `scale`.
  at::Tensor scale = {};
  std::map<std::string, PassMetric> metrics = {};  ///< by the names of Objective::metrics
  /// f64 [P, 2], without grad: numbers that were found and those that were wanted, of which an
  /// evaluation says how well they go together. Undefined: none, as on other ranks of the context
  /// axis than the first.
  at::Tensor found_and_wanted = {};
  /// What counts as the loss where `scale` makes of `sum` another number; undefined: `sum`.
  at::Tensor value = {};
  const at::Tensor& counted() const { return value.defined() ? value : sum; }
};

/// loss.scale where it is defined, else `scale`: of the type of loss.sum.
at::Tensor grad_of_sum(const Loss& loss, double scale);

/// What prepare() found for one micro-batch: a struct of the objective's own, or nothing.
class Columns {
 public:
  Columns() = default;
  template <typename Found>
  static Columns of(Found found) {
    Columns columns;
    columns.found_ = std::move(found);
    return columns;
  }
  /// nullptr: prepare() found no such thing.
  template <typename Found>
  const Found* find() const {
    return std::any_cast<Found>(&found_);
  }
  /// Errors: InternalError where prepare() found no such thing.
  template <typename Found>
  const Found& as() const {
    const Found* const found = find<Found>();
    if (!found) throw InternalError("[objective] prepare() did not find what evaluate() needs");
    return *found;
  }

 private:
  std::any found_;
};

class Objective {
 public:
  virtual ~Objective() = default;
  /// The names of the metrics that evaluate() gives; the same on every rank.
  virtual std::vector<std::string> metrics() const = 0;
  /// What Loss::found_and_wanted is of, such as "cosine": an evaluation gives pearson_cosine and
  /// spearman_cosine. "": it has none.
  virtual std::string found() const { return ""; }
  /// What the loss of `batch` is divided by, such as its number of targets. It must not need a
  /// pass. A batch that weighs 0 trains nothing, and is left out.
  virtual double weight(const data::Batch& batch) const = 0;
  /// How much of weight() one target of `batch` has, where each batch has its own; nothing: as much
  /// as on average over the step. batch: what evaluate() takes.
  virtual std::optional<double> weight_of_target(const data::Batch& /*batch*/) const { return {}; }
  /// Finds what evaluate() needs beside the pass: results of passes without gradient, such as those
  /// of a reference model, and sums over the whole step. batches: those of this rank that weigh
  /// anything, whole also on a context axis (OwnParts). The result has one entry for each of them,
  /// which need be complete on the last stage only. Collective like ForwardPasses::run; a rank
  /// without batches takes part.
  virtual std::vector<Columns> prepare(const ForwardPasses& passes,
                                       const std::vector<const data::Batch*>& batches) const;
  /// Whether prepare() takes sums over all batches of a step. An evaluation then prepares all of
  /// its batches together, so that it does not depend on their cut.
  virtual bool spans_batches() const { return false; }
  /// What of a whole batch goes through the passes of evaluate(), where that is not all of it.
  virtual std::optional<data::Batch> trained_part(const data::Batch& batch) const;
  /// The loss of `batch`, on the last stage, which `policy` is. batch: the trained part, and of it
  /// what this rank of the context axis has. input: `batch` as a pass takes it.
  /// hidden_nH: what policy.forward(input) gave. columns: what prepare() found for the batch.
  /// scale: the factor that will be put on the sum before backward. Collective like
  /// policy.forward().
  virtual Loss evaluate(const models::CausalLM& policy, const at::Tensor& hidden_nH,
                        const models::ForwardInput& input, const data::Batch& batch,
                        const Columns& columns, double scale) const = 0;
  /// What of evaluate() goes over the ranks of the data axis, on a rank that has no batch where
  /// another has one. Collective as that, on the last stage.
  virtual void take_part(const models::CausalLM& /*policy*/) const {}
};

/// Cross-entropy of the next token over tokens that are targets. Its metric is token_acc.
std::shared_ptr<const Objective> language_modelling();
/// The same, but the loss of a step is the mean over its micro-batches of each one's mean over its
/// targets, whatever their number, as Megatron-LM divides without --calculate-per-token-loss.
std::shared_ptr<const Objective> means_of_micro_batches();

/// objective.prepare(), of which the result has a place for each batch. Errors: InternalError.
std::vector<Columns> prepared(const Objective& objective, const ForwardPasses& passes,
                              const std::vector<const data::Batch*>& batches);

/// What this rank trains on of whole batches: of their trained parts what it has on the context
/// axis.
class TrainedParts {
 public:
  /// Keeps references to those of `whole` that it trains on as they are.
  TrainedParts(const Objective& objective, const parallel::Mesh& mesh,
               const std::vector<const data::Batch*>& whole);
  const std::vector<const data::Batch*>& batches() const { return batches_; }

 private:
  std::deque<data::Batch> made_;
  std::vector<const data::Batch*> batches_;
};

/// For each of the batch's S segments the sum of its targets' log-probabilities: f64 [S] with grad.
/// hidden_nH: what policy.forward(input) gave on the last stage. On a context axis every rank gets
/// the sums of whole segments.
/// REQUIRES: no target crosses a segment's border (data::Sample::labels_are_targets is false).
at::Tensor segment_logprobs(const models::CausalLM& policy, const at::Tensor& hidden_nH,
                            const models::ForwardInput& input, const data::Batch& batch);
/// The same beside sums over further targets, such as those of prompts: f64 [2, S]. others: as
/// batch.targets, and a token has one of the two at most.
at::Tensor segment_logprobs(const models::CausalLM& policy, const at::Tensor& hidden_nH,
                            const models::ForwardInput& input, const data::Batch& batch,
                            const std::vector<int64_t>& others);

/// Sums metrics over all ranks of the policy's mesh. own: the objective's, from this rank's passes.
/// results: what layers gave in them; these figures are divided by weights of their own, or by
/// `weight`, that of the batches of all ranks. Collective.
Metrics metrics_of_all(const Objective& objective, const models::CausalLM& policy,
                       const Metrics& own, const models::PassResults& results, double weight);

}  // namespace danlu::train
