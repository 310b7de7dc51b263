#include "train/objectives/weighted_tokens.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/scalar_tensor.h>

#include "settings/objective_config.h"
#include "train/objectives/target_rows.h"

namespace danlu::train {
namespace {

class WeightedTokens : public Objective {
 public:
  std::vector<std::string> metrics() const override { return {"token_acc"}; }
  double weight(const data::Batch& batch) const override {
    return static_cast<double>(batch.num_targets);
  }
  Loss evaluate(const models::CausalLM& policy, const at::Tensor& hidden_nH,
                const models::ForwardInput& input, const data::Batch& batch, const Columns&,
                double) const override {
    const TargetRows targets(batch);
    const ops::TokenLogprobs found =
        policy.token_logprobs(hidden_nH, input, targets.rows_M, targets.ids_M);
    const at::Tensor logprobs_M = found.logprobs_M.to(at::kDouble);
    Loss loss;
    loss.sum = -(logprobs_M.detach().exp() * logprobs_M).sum();
    loss.metrics["token_acc"] = {found.is_largest_M.to(at::kLong).sum(),
                                 at::scalar_tensor(targets.rows_M.numel(), at::kLong)};
    return loss;
  }
};

/// What the entropy is divided by, about the most that 20 tokens have: log 20.
constexpr double kEntropyUnit = 3.0;

class EntropyWeightedTokens : public Objective {
 public:
  explicit EntropyWeightedTokens(double power) : power_(power) {}

  std::vector<std::string> metrics() const override { return {"token_acc", "entropy"}; }
  double weight(const data::Batch& batch) const override {
    return static_cast<double>(batch.num_targets);
  }
  Loss evaluate(const models::CausalLM& policy, const at::Tensor& hidden_nH,
                const models::ForwardInput& input, const data::Batch& batch, const Columns&,
                double) const override {
    const TargetRows targets(batch);
    const ops::TokenLogprobs found = policy.token_logprobs(
        hidden_nH, input, targets.rows_M, targets.ids_M,
        {.entropy = true, .top_of_entropy = settings::ObjectiveConfig::kTopOfEntropy});
    const at::Tensor entropies_M = found.entropies_M.to(at::kDouble);
    const at::Tensor weights_M = (entropies_M / kEntropyUnit).pow(power_);
    const at::Tensor count = at::scalar_tensor(targets.rows_M.numel(), at::kLong);
    Loss loss;
    loss.sum = -(weights_M * found.logprobs_M.to(at::kDouble)).sum();
    loss.metrics["token_acc"] = {found.is_largest_M.to(at::kLong).sum(), count};
    loss.metrics["entropy"] = {entropies_M.sum(), count};
    return loss;
  }

 private:
  double power_;
};

}  // namespace

std::shared_ptr<const Objective> entropy_weighted_tokens(double power) {
  return std::make_shared<const EntropyWeightedTokens>(power);
}

std::shared_ptr<const Objective> weighted_tokens() {
  static const auto objective = std::make_shared<const WeightedTokens>();
  return objective;
}

}  // namespace danlu::train
