#include "train/objectives/weighted_tokens.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/scalar_tensor.h>

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

}  // namespace

std::shared_ptr<const Objective> weighted_tokens() {
  static const auto objective = std::make_shared<const WeightedTokens>();
  return objective;
}

}  // namespace danlu::train
