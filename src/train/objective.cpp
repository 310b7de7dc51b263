#include "train/objective.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <utility>

#include "arch/layer_kind.h"
#include "base/error.h"
#include "base/ignore_label.h"
#include "device/sent.h"
#include "train/batch_input.h"
#include "train/expert_load.h"
#include "train/segment_sums.h"

namespace danlu::train {
namespace {

at::Tensor count_tensor(int64_t number) { return at::scalar_tensor(number, at::kLong); }

class LanguageModelling : public Objective {
 public:
  std::vector<std::string> metrics() const override { return {"token_acc"}; }
  double weight(const data::Batch& batch) const override {
    return static_cast<double>(batch.num_targets);
  }
  Loss evaluate(const models::CausalLM& policy, const at::Tensor& hidden_nH,
                const models::ForwardInput& input, const data::Batch& batch, const Columns&,
                double scale) const override {
    const models::LossSum loss = policy.head_loss(hidden_nH, input, targets_of(batch), scale);
    Loss found;
    found.sum = loss.sum;
    found.scale = loss.factor;
    found.metrics["token_acc"] = {loss.num_correct, count_tensor(loss.num_targets)};
    return found;
  }
};

/// The targets of the whole batch that `batch` is a part of.
int64_t num_targets_of_whole(const data::Batch& batch) {
  if (batch.rows.empty()) return batch.num_targets;
  return std::count_if(batch.all_targets.begin(), batch.all_targets.end(),
                       [](int64_t target) { return target != kIgnoreLabel; });
}

/// A batch is a micro-batch and weighs 1; its parts on a context axis give parts of its mean.
class MeansOfMicroBatches : public Objective {
 public:
  std::vector<std::string> metrics() const override { return {"token_acc"}; }
  double weight(const data::Batch& batch) const override { return batch.num_targets > 0 ? 1 : 0; }
  std::optional<double> weight_of_target(const data::Batch& batch) const override {
    return 1.0 / static_cast<double>(std::max<int64_t>(1, num_targets_of_whole(batch)));
  }
  Loss evaluate(const models::CausalLM& policy, const at::Tensor& hidden_nH,
                const models::ForwardInput& input, const data::Batch& batch, const Columns&,
                double scale) const override {
    const double of_target = *weight_of_target(batch);
    const models::LossSum loss =
        policy.head_loss(hidden_nH, input, targets_of(batch), scale * of_target);
    Loss mean;
    mean.sum = loss.sum;
    mean.scale = loss.factor.defined() ? loss.factor
                                       : at::ones({}, loss.sum.options()) * (scale * of_target);
    mean.value = loss.sum.detach() * of_target;
    mean.metrics["token_acc"] = {loss.num_correct, count_tensor(loss.num_targets)};
    return mean;
  }
};

}  // namespace

at::Tensor grad_of_sum(const Loss& loss, double scale) {
  return loss.scale.defined() ? loss.scale : at::ones({}, loss.sum.options()) * scale;
}

std::vector<Columns> Objective::prepare(const ForwardPasses&,
                                        const std::vector<const data::Batch*>& batches) const {
  return std::vector<Columns>(batches.size());
}

std::optional<data::Batch> Objective::trained_part(const data::Batch&) const { return {}; }

TrainedParts::TrainedParts(const Objective& objective, const parallel::Mesh& mesh,
                           const std::vector<const data::Batch*>& whole) {
  for (const data::Batch* batch : whole) {
    if (std::optional<data::Batch> part = objective.trained_part(*batch))
      batch = &made_.emplace_back(std::move(*part));
    if (!mesh.context().is_alone()) batch = &made_.emplace_back(own_part(mesh, *batch));
    batches_.push_back(batch);
  }
}

std::vector<Columns> prepared(const Objective& objective, const ForwardPasses& passes,
                              const std::vector<const data::Batch*>& batches) {
  std::vector<Columns> columns = objective.prepare(passes, batches);
  if (columns.size() != batches.size())
    throw InternalError("[objective] columns are of every batch, on every stage");
  return columns;
}

std::shared_ptr<const Objective> language_modelling() {
  static const auto objective = std::make_shared<const LanguageModelling>();
  return objective;
}

std::shared_ptr<const Objective> means_of_micro_batches() {
  static const auto objective = std::make_shared<const MeansOfMicroBatches>();
  return objective;
}

at::Tensor segment_logprobs(const models::CausalLM& policy, const at::Tensor& hidden_nH,
                            const models::ForwardInput& input, const data::Batch& batch) {
  return segment_logprobs(policy, hidden_nH, input, batch,
                          std::vector<int64_t>(batch.targets.size(), kIgnoreLabel))
      .select(0, 0);
}

at::Tensor segment_logprobs(const models::CausalLM& policy, const at::Tensor& hidden_nH,
                            const models::ForwardInput& input, const data::Batch& batch,
                            const std::vector<int64_t>& others) {
  const std::vector<int64_t> segments = data::segment_of_tokens(batch);
  const auto num_segments = static_cast<int64_t>(batch.segment_starts.size()) - 1;
  std::vector<int64_t> rows, ids, sum_of_row;
  for (size_t i = 0; i < batch.targets.size(); ++i) {
    const bool is_other = batch.targets[i] == kIgnoreLabel;
    if (is_other && others[i] == kIgnoreLabel) continue;
    rows.push_back(static_cast<int64_t>(i));
    ids.push_back(is_other ? others[i] : batch.targets[i]);
    sum_of_row.push_back(segments[i] + (is_other ? num_segments : 0));
  }
  const at::TensorOptions options(at::kLong);
  const at::Tensor logprobs_M =
      policy.token_logprobs(hidden_nH, input, at::tensor(rows, options), at::tensor(ids, options))
          .logprobs_M.to(at::kDouble);
  const at::Tensor own = sums_of_segments(
      logprobs_M, device::sent(at::tensor(sum_of_row, options), logprobs_M.device()),
      2 * num_segments);
  return parallel::Region(policy.mesh().context().all(), /*sequence=*/false)
      .leave(own)
      .view({2, num_segments});
}

Metrics metrics_of_all(const Objective& objective, const models::CausalLM& policy,
                       const Metrics& own, const models::PassResults& results, double weight) {
  const std::vector<std::string> names = objective.metrics(),
                                 of_layers = arch::result_names(policy.config());
  std::vector<double> numbers;  // in an order that all ranks have
  for (const std::string& name : names) {
    const auto found = own.find(name);
    const Metric metric = found == own.end() ? Metric{} : found->second;
    numbers.insert(numbers.end(), {metric.sum, metric.weight});
  }
  std::vector<double> sums;
  for (const std::string& name : of_layers) {
    const auto found = results.sums().find(name);
    const bool is_there = found != results.sums().end();
    const auto own_weight = results.weights().find(name);
    sums.insert(sums.end(), {is_there ? found->second.item<double>() : 0, is_there ? 1.0 : 0.0,
                             own_weight == results.weights().end() ? 0 : own_weight->second});
  }
  const parallel::Mesh& mesh = policy.mesh();
  for (std::vector<double>* list : {&numbers, &sums}) {
    sum_over(mesh.batch_ranks(), *list);
    sum_over(mesh.pipeline(), *list);
  }
  // Under sequence parallelism each rank's layers saw a part of the rows.
  if (mesh.region().is_sequence()) sum_over(mesh.tensor(), sums);
  take_first(mesh.tensor(), numbers);
  take_first(mesh.tensor(), sums);
  Metrics metrics = load_metrics(load_of_all(policy, results));
  for (size_t i = 0; i < names.size(); ++i)
    metrics[names[i]] = {numbers[2 * i], numbers[2 * i + 1]};
  for (size_t i = 0; i < of_layers.size(); ++i)
    metrics[of_layers[i]] = {sums[3 * i], sums[3 * i + 2] > 0   ? sums[3 * i + 2]
                                          : sums[3 * i + 1] > 0 ? weight
                                                                : 0};
  return metrics;
}

}  // namespace danlu::train
