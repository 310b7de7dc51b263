#include "train/objectives/distillation.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/scalar_tensor.h>

#include <utility>

#include "models/frozen_head.h"
#include "train/batch_input.h"
#include "train/objectives/target_rows.h"

namespace danlu::train {
namespace {

constexpr const char* kDivergence = "divergence";
constexpr const char* kSftLoss = "sft_loss";

/// What the teacher's head is asked of.
struct DistillationColumns {
  at::Tensor teacher_MH;  ///< the teacher's hidden states where tokens are learnt
};

class Distillation : public Objective {
 public:
  Distillation(const settings::DistillationConfig& config,
               std::shared_ptr<const FrozenModel> teacher)
      : config_(config),
        teacher_(std::move(teacher)),
        head_(std::make_shared<const models::FrozenHead>(teacher_->stage())) {}

  std::vector<std::string> metrics() const override {
    if (config_.sft_alpha == 0) return {};
    return {kDivergence, kSftLoss};
  }

  double weight(const data::Batch& batch) const override {
    return batch.is_filling ? 0 : static_cast<double>(batch.num_targets);
  }

  std::vector<Columns> prepare(const ForwardPasses& passes,
                               const std::vector<const data::Batch*>& whole) const override {
    std::vector<Columns> columns(whole.size());
    const OwnParts parts(passes.stage().mesh(), whole);
    ask_reference(teacher_.get(), passes, [&](const ForwardPasses& of, bool) {
      // The hidden states are kept, and not the logits, which are a vocabulary for each token.
      of.run(parts.batches(), {.again = true},
             [&](size_t i, const at::Tensor& hidden_nH, const models::ForwardInput&) {
               columns[i] = Columns::of(DistillationColumns{
                   head_->rows(hidden_nH, TargetRows(*parts.batches()[i]).rows_M)});
             });
    });
    return columns;
  }

  Loss evaluate(const models::CausalLM& policy, const at::Tensor& hidden_nH,
                const models::ForwardInput& input, const data::Batch& batch, const Columns& columns,
                double) const override {
    const TargetRows targets(batch);
    // The backward asks once more.
    const auto of_teacher = [head = head_, rows_MH = columns.as<DistillationColumns>().teacher_MH](
                                int64_t begin, int64_t count, const ops::HeadColumns& of_head) {
      return head->logits(rows_MH.narrow(0, begin, count), of_head);
    };
    const bool is_on_policy = batch.token_columns.count(kDrawnColumn) > 0;
    const bool has_sft_loss = config_.sft_alpha > 0 && !is_on_policy;
    const ops::HeadDivergence found =
        policy.divergence(hidden_nH, input, targets.rows_M, targets.ids_M, of_teacher,
                          {.beta = config_.beta,
                           .temperature = config_.temperature,
                           .topk = config_.topk,
                           .with_logprobs = has_sft_loss});
    Loss loss;
    loss.sum = found.divergences_M.to(at::kDouble).sum();
    const at::Tensor count = at::scalar_tensor(targets.rows_M.numel(), at::kLong);
    if (config_.sft_alpha > 0) loss.metrics[kDivergence] = {loss.sum.detach(), count};
    if (has_sft_loss) {
      const at::Tensor sft_loss = -found.logprobs_M.to(at::kDouble).sum();
      loss.metrics[kSftLoss] = {sft_loss.detach(), count};
      loss.sum = loss.sum + sft_loss * config_.sft_alpha;
    }
    return loss;
  }

 private:
  settings::DistillationConfig config_;
  std::shared_ptr<const FrozenModel> teacher_;
  std::shared_ptr<const models::FrozenHead> head_;
};

}  // namespace

std::shared_ptr<const Objective> distillation_objective(
    const settings::DistillationConfig& config, std::shared_ptr<const FrozenModel> teacher) {
  return std::make_shared<const Distillation>(config, std::move(teacher));
}

}  // namespace danlu::train
