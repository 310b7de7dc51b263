// Cross entropy weighted by probabilities, beside the divergence from what the model was (ASFT).
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/scalar_tensor.h>

#include <utility>

#include "models/frozen_head.h"
#include "train/batch_input.h"
#include "train/objectives/target_rows.h"
#include "train/objectives/weighted_tokens.h"

namespace danlu::train {
namespace {

/// Its hidden states where tokens are learnt.
struct AnchorColumns {
  at::Tensor rows_MH;
};

class AnchoredTokens : public Objective {
 public:
  AnchoredTokens(double divergence_weight, std::shared_ptr<const FrozenModel> reference)
      : divergence_weight_(divergence_weight),
        reference_(std::move(reference)),
        head_(std::make_shared<const models::FrozenHead>(reference_->stage())) {}

  std::vector<std::string> metrics() const override { return {"divergence"}; }

  double weight(const data::Batch& batch) const override {
    return static_cast<double>(batch.num_targets);
  }

  std::vector<Columns> prepare(const ForwardPasses& passes,
                               const std::vector<const data::Batch*>& whole) const override {
    std::vector<Columns> columns(whole.size());
    const OwnParts parts(passes.stage().mesh(), whole);
    ask_reference(reference_.get(), passes, [&](const ForwardPasses& of, bool) {
      of.run(parts.batches(), {.again = true},
             [&](size_t i, const at::Tensor& hidden_nH, const models::ForwardInput&) {
               columns[i] = Columns::of(
                   AnchorColumns{head_->rows(hidden_nH, TargetRows(*parts.batches()[i]).rows_M)});
             });
    });
    return columns;
  }

  Loss evaluate(const models::CausalLM& policy, const at::Tensor& hidden_nH,
                const models::ForwardInput& input, const data::Batch& batch, const Columns& columns,
                double) const override {
    const TargetRows targets(batch);
    const auto of_reference = [head = head_, rows_MH = columns.as<AnchorColumns>().rows_MH](
                                  int64_t begin, int64_t count, const ops::HeadColumns& of_head) {
      return head->logits(rows_MH.narrow(0, begin, count), of_head);
    };
    const ops::HeadDivergence found = policy.divergence(hidden_nH, input, targets.rows_M,
                                                        targets.ids_M, of_reference, {.beta = 0});
    const at::Tensor logprobs_M = found.logprobs_M.to(at::kDouble);
    const at::Tensor divergence = found.divergences_M.to(at::kDouble).sum();
    Loss loss;
    loss.sum = divergence * divergence_weight_ - (logprobs_M.detach().exp() * logprobs_M).sum();
    loss.metrics["divergence"] = {divergence.detach(),
                                  at::scalar_tensor(targets.rows_M.numel(), at::kLong)};
    return loss;
  }

 private:
  double divergence_weight_;
  std::shared_ptr<const FrozenModel> reference_;
  std::shared_ptr<const models::FrozenHead> head_;
};

}  // namespace

std::shared_ptr<const Objective> anchored_tokens(double weight,
                                                 std::shared_ptr<const FrozenModel> reference) {
  return std::make_shared<const AnchoredTokens>(weight, std::move(reference));
}

}  // namespace danlu::train
