#include "train/objectives/process_reward.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>

#include <algorithm>

#include "base/error.h"
#include "base/ignore_label.h"
#include "device/sent.h"
#include "parallel/agree.h"

namespace danlu::train {
namespace {

/// The steps of a pass: their rows and, for each of `candidates` tokens there, its id.
struct JudgedSteps {
  std::vector<int64_t> rows, ids;
  std::vector<int64_t> right;  ///< of each step the candidate that it deserves
};

/// Targets are the labels of steps.
class StepObjective : public Objective {
 public:
  std::vector<std::string> metrics() const override { return {"acc"}; }
  double weight(const data::Batch& batch) const override {
    return static_cast<double>(batch.num_targets);
  }
  std::vector<Columns> prepare(const ForwardPasses& passes,
                               const std::vector<const data::Batch*>& whole) const override {
    parallel::together(passes.stage().mesh().batch_ranks(), [&] {
      for (const data::Batch* batch : whole) {
        for (const int64_t target : batch->targets) {
          if (target == kIgnoreLabel || is_known(target)) continue;
          throw DataError(
              tr("[train] a step is labelled with token {}, which is none of --reward_tokens",
                 target));
        }
      }
    });
    return std::vector<Columns>(whole.size());
  }

 private:
  virtual bool is_known(int64_t label) const = 0;
};

class ProcessReward : public StepObjective {
 public:
  explicit ProcessReward(const std::vector<int64_t>& reward_ids) : reward_ids_(reward_ids) {
    std::sort(reward_ids_.begin(), reward_ids_.end());
  }

  Loss evaluate(const models::CausalLM& policy, const at::Tensor& hidden_nH,
                const models::ForwardInput& input, const data::Batch& batch, const Columns&,
                double scale) const override;

 private:
  bool is_known(int64_t label) const override {
    return reward_ids_.empty() || std::binary_search(reward_ids_.begin(), reward_ids_.end(), label);
  }
  JudgedSteps steps_of(const data::Batch& batch) const;

  std::vector<int64_t> reward_ids_;  ///< ascending
};

JudgedSteps ProcessReward::steps_of(const data::Batch& batch) const {
  JudgedSteps steps;
  for (size_t i = 0; i < batch.targets.size(); ++i) {
    const int64_t target = batch.targets[i];
    if (target == kIgnoreLabel) continue;
    std::vector<int64_t> candidates = reward_ids_;
    if (candidates.empty()) candidates.push_back(target);
    const auto found = std::find(candidates.begin(), candidates.end(), target);
    steps.right.push_back(found - candidates.begin());
    steps.rows.insert(steps.rows.end(), candidates.size(), static_cast<int64_t>(i));
    steps.ids.insert(steps.ids.end(), candidates.begin(), candidates.end());
  }
  return steps;
}

Loss ProcessReward::evaluate(const models::CausalLM& policy, const at::Tensor& hidden_nH,
                             const models::ForwardInput& input, const data::Batch& batch,
                             const Columns&, double) const {
  const JudgedSteps steps = steps_of(batch);
  const at::TensorOptions on_host(at::kLong);
  const auto num_steps = static_cast<int64_t>(steps.right.size());
  const ops::TokenLogprobs found = policy.token_logprobs(
      hidden_nH, input, at::tensor(steps.rows, on_host), at::tensor(steps.ids, on_host));
  const at::Tensor logprobs_M = found.logprobs_M.to(at::kDouble);
  at::Tensor sum, num_right;
  if (reward_ids_.empty()) {
    sum = -logprobs_M.sum();
    num_right = found.is_largest_M.sum();
  } else {
    // The norm over the whole vocabulary is the same for all candidates, and so cancels out.
    const auto candidates = static_cast<int64_t>(reward_ids_.size());
    const at::Tensor scores_SC = at::log_softmax(logprobs_M.view({num_steps, candidates}), 1);
    const at::Tensor right_S = device::sent(at::tensor(steps.right, on_host), scores_SC.device());
    sum = -scores_SC.gather(1, right_S.unsqueeze(1)).sum();
    num_right = (scores_SC.detach().argmax(1) == right_S).sum();
  }
  return {sum, {}, {{"acc", {num_right, at::scalar_tensor(num_steps, at::kLong)}}}};
}

class StepClasses : public StepObjective {
 public:
  StepClasses(int64_t right_id, int64_t wrong_id) : right_id_(right_id), wrong_id_(wrong_id) {}

  Loss evaluate(const models::CausalLM& policy, const at::Tensor& hidden_nH,
                const models::ForwardInput& input, const data::Batch& batch, const Columns&,
                double) const override {
    std::vector<int64_t> rows, classes;
    for (size_t i = 0; i < batch.targets.size(); ++i) {
      if (batch.targets[i] == kIgnoreLabel) continue;
      rows.push_back(static_cast<int64_t>(i));
      classes.push_back(batch.targets[i] == right_id_ ? 1 : 0);
    }
    const at::TensorOptions on_host(at::kLong);
    const at::Tensor scores_SC = at::log_softmax(
        policy.scores(hidden_nH, input, at::tensor(rows, on_host)).to(at::kDouble), 1);
    const at::Tensor right_S = device::sent(at::tensor(classes, on_host), scores_SC.device());
    const at::Tensor sum = -scores_SC.gather(1, right_S.unsqueeze(1)).sum();
    const at::Tensor num_right = (scores_SC.detach().argmax(1) == right_S).sum();
    return {sum, {}, {{"acc", {num_right, at::scalar_tensor(std::ssize(rows), at::kLong)}}}};
  }

 private:
  bool is_known(int64_t label) const override { return label == right_id_ || label == wrong_id_; }

  int64_t right_id_, wrong_id_;
};

}  // namespace

std::shared_ptr<const Objective> step_class_objective(int64_t right_id, int64_t wrong_id) {
  return std::make_shared<StepClasses>(right_id, wrong_id);
}

std::shared_ptr<const Objective> process_reward_objective(const std::vector<int64_t>& reward_ids) {
  return std::make_shared<ProcessReward>(reward_ids);
}

}  // namespace danlu::train
