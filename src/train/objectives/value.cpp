#include "train/objectives/value.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/scalar_tensor.h>

namespace danlu::train {
namespace {

constexpr const char* kLoss = "loss/value_avg";
constexpr const char* kClippedValues = "val/clipfrac_avg";

class Value : public Objective {
 public:
  Value(double weight, double clip) : weight_(weight), clip_(clip) {}

  std::vector<std::string> metrics() const override { return {kLoss, kClippedValues}; }
  double weight(const data::Batch& batch) const override {
    return batch.is_filling ? 0 : static_cast<double>(batch.num_targets);
  }
  Loss evaluate(const models::CausalLM& critic, const at::Tensor& hidden_nH,
                const models::ForwardInput& input, const data::Batch& batch, const Columns&,
                double) const override {
    const DrawnTokens drawn(batch, hidden_nH.device());
    const at::Tensor value_M = token_values(critic, hidden_nH, input, drawn.rows_M),
                     return_M = drawn.needed_column(batch, kReturnColumn),
                     old_M = drawn.needed_column(batch, kValueColumn);
    const at::Tensor held_M = old_M + (value_M - old_M).clamp(-clip_, clip_);
    const at::Tensor free_M = (value_M - return_M).square(),
                     clipped_M = (held_M - return_M).square();
    const at::Tensor sum = at::maximum(free_M, clipped_M).sum() / 2;
    const at::Tensor count = at::scalar_tensor(drawn.rows_M.numel(), at::kLong);
    Loss loss;
    loss.sum = sum * weight_;
    loss.metrics[kLoss] = {sum.detach(), count};
    loss.metrics[kClippedValues] = {(clipped_M > free_M).to(at::kDouble).sum(), count};
    return loss;
  }

 private:
  double weight_, clip_;
};

}  // namespace

at::Tensor token_values(const models::CausalLM& critic, const at::Tensor& hidden_nH,
                        const models::ForwardInput& input, const at::Tensor& rows_M) {
  return critic.scores(hidden_nH, input, rows_M).view({-1}).to(at::kDouble);
}

std::shared_ptr<const Objective> value_objective(double weight, double clip) {
  return std::make_shared<const Value>(weight, clip);
}

}  // namespace danlu::train
