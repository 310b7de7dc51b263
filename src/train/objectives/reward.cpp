#include "train/objectives/reward.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/log_sigmoid.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>

#include <utility>

#include "device/sent.h"
#include "train/objectives/pairs.h"
#include "train/segment_sums.h"

namespace danlu::train {
namespace {

class Reward : public Objective {
 public:
  explicit Reward(const settings::RewardConfig& config) : config_(config) {}

  std::vector<std::string> metrics() const override {
    return {"accuracy", "margin", "mean_reward", "rewards/chosen", "rewards/rejected"};
  }
  double weight(const data::Batch& batch) const override { return num_pairs(batch); }
  std::vector<Columns> prepare(const ForwardPasses& passes,
                               const std::vector<const data::Batch*>& whole) const override {
    require_pairs(passes.stage().mesh(), whole);
    return std::vector<Columns>(whole.size());
  }
  Loss evaluate(const models::CausalLM& policy, const at::Tensor& hidden_nH,
                const models::ForwardInput& input, const data::Batch& batch, const Columns&,
                double) const override {
    const at::Tensor scores_P2 = segment_scores(policy, hidden_nH, input, batch).view({-1, 2});
    const at::Tensor chosen_P = scores_P2.select(1, 0), rejected_P = scores_P2.select(1, 1);
    const at::Tensor lead_P = chosen_P - rejected_P;
    at::Tensor asked_P = lead_P;
    if (!batch.segment_values.empty()) {
      const at::Tensor values_S =
          at::tensor(batch.segment_values, at::TensorOptions(at::kFloat)).to(at::kDouble);
      asked_P = lead_P - device::sent(values_S.view({-1, 2}).select(1, 0), lead_P.device());
    }
    at::Tensor loss = -at::log_sigmoid(asked_P).sum();
    if (config_.centring > 0)
      loss = loss + config_.centring * (chosen_P + rejected_P).square().sum();
    return loss_of_whole_segments(policy.mesh(), loss,
                                  {{"accuracy", mean_of_pairs((lead_P > 0).to(at::kDouble))},
                                   {"margin", mean_of_pairs(lead_P)},
                                   {"mean_reward", mean_of_pairs((chosen_P + rejected_P) / 2)},
                                   {"rewards/chosen", mean_of_pairs(chosen_P)},
                                   {"rewards/rejected", mean_of_pairs(rejected_P)}});
  }

 private:
  settings::RewardConfig config_;
};

}  // namespace

at::Tensor segment_scores(const models::CausalLM& model, const at::Tensor& hidden_nH,
                          const models::ForwardInput& input, const data::Batch& batch) {
  return segment_numbers(model, hidden_nH, input, batch).view({-1});
}

at::Tensor segment_numbers(const models::CausalLM& model, const at::Tensor& hidden_nH,
                           const models::ForwardInput& input, const data::Batch& batch,
                           const std::vector<int64_t>& ids) {
  const auto [rows, segments] = read_tokens(model.config(), batch);
  const at::TensorOptions options(at::kLong);
  const at::Tensor rows_M = at::tensor(rows, options);
  const at::Tensor scores_ML =
      (ids.empty() ? model.scores(hidden_nH, input, rows_M)
                   : model.logits_of(hidden_nH, input, rows_M, at::tensor(ids, options)))
          .to(at::kDouble);
  const auto num_segments = static_cast<int64_t>(batch.segment_starts.size()) - 1;
  const at::Tensor own = sums_of_segments(
      scores_ML, device::sent(at::tensor(segments, options), scores_ML.device()), num_segments);
  return parallel::Region(model.mesh().context().all(), /*sequence=*/false).leave(own);
}

std::pair<std::vector<int64_t>, std::vector<int64_t>> last_tokens(const data::Batch& batch) {
  std::vector<RowRange> ranges = batch.rows;
  if (ranges.empty()) ranges = {{0, static_cast<int64_t>(batch.ids.size())}};
  std::pair<std::vector<int64_t>, std::vector<int64_t>> found;
  int64_t before = 0;  // tokens of earlier ranges
  for (const RowRange& range : ranges) {
    for (size_t s = 0; s + 1 < batch.segment_starts.size(); ++s) {
      const int64_t last = batch.segment_starts[s + 1] - 1;
      if (last < range.begin || last >= range.end) continue;
      found.first.push_back(before + last - range.begin);
      found.second.push_back(static_cast<int64_t>(s));
    }
    before += range.size();
  }
  return found;
}

std::pair<std::vector<int64_t>, std::vector<int64_t>> read_tokens(const arch::ModelConfig& model,
                                                                  const data::Batch& batch) {
  if (!model.encoder) return last_tokens(batch);
  std::pair<std::vector<int64_t>, std::vector<int64_t>> found;
  for (size_t s = 0; s + 1 < batch.segment_starts.size(); ++s) {
    found.first.push_back(batch.segment_starts[s]);
    found.second.push_back(static_cast<int64_t>(s));
  }
  return found;
}

std::shared_ptr<const Objective> reward_objective(const settings::RewardConfig& config) {
  return std::make_shared<Reward>(config);
}

}  // namespace danlu::train
