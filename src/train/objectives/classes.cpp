#include "train/objectives/classes.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/log_sigmoid.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>

#include <utility>

#include "base/error.h"
#include "device/sent.h"
#include "parallel/agree.h"
#include "train/objectives/pairs.h"
#include "train/objectives/reward.h"

namespace danlu::train {
namespace {

using arch::LabelProblem;

int64_t num_texts(const data::Batch& batch) { return std::ssize(batch.segment_starts) - 1; }

PassMetric mean_of(const at::Tensor& values) {
  return {values.detach().to(at::kDouble).sum(), at::scalar_tensor(values.numel(), at::kDouble)};
}

/// The sum over texts, and what is shown of it.
struct Judged {
  at::Tensor sum;
  std::map<std::string, PassMetric> metrics;
};

Judged of_one_class(const at::Tensor& numbers_SL, const at::Tensor& labels_S1) {
  const at::Tensor classes_S1 = labels_S1.to(at::kLong);
  const at::Tensor logs_SL = at::log_softmax(numbers_SL, 1);
  const at::Tensor is_right_S = numbers_SL.detach().argmax(1) == classes_S1.view({-1});
  return {-logs_SL.gather(1, classes_S1).sum(), {{"accuracy", mean_of(is_right_S)}}};
}

Judged of_classes(const at::Tensor& numbers_SL, const at::Tensor& labels_SL) {
  const at::Tensor losses_SL =
      -(labels_SL * at::log_sigmoid(numbers_SL) + (1 - labels_SL) * at::log_sigmoid(-numbers_SL));
  const at::Tensor is_right_SL = (numbers_SL.detach() > 0) == (labels_SL > 0.5);
  return {losses_SL.mean(1).sum(),
          {{"accuracy", mean_of(is_right_SL)}, {"exact_match", mean_of(is_right_SL.all(1))}}};
}

Judged of_numbers(const at::Tensor& numbers_SL, const at::Tensor& labels_SL) {
  const at::Tensor far_SL = numbers_SL - labels_SL;
  return {far_SL.square().mean(1).sum(), {{"mae", mean_of(far_SL.detach().abs())}}};
}

class Classes : public Objective {
 public:
  explicit Classes(const settings::ClassesConfig& config) : config_(config) {}

  std::vector<std::string> metrics() const override {
    if (config_.problem == LabelProblem::kNumbers) return {"mae"};
    if (config_.problem == LabelProblem::kClasses) return {"accuracy", "exact_match"};
    return {"accuracy"};
  }
  double weight(const data::Batch& batch) const override {
    return static_cast<double>(num_texts(batch));
  }
  std::vector<Columns> prepare(const ForwardPasses& passes,
                               const std::vector<const data::Batch*>& whole) const override {
    parallel::together(passes.stage().mesh().batch_ranks(), [&] {
      for (const data::Batch* batch : whole) {
        if (std::ssize(batch->segment_labels) == num_texts(*batch) * numbers_of_a_label()) continue;
        throw DataError(tr("[train] texts without a label each"),
                        tr("rows of --task_type seq_cls have a column \"label\""));
      }
    });
    return std::vector<Columns>(whole.size());
  }
  Loss evaluate(const models::CausalLM& policy, const at::Tensor& hidden_nH,
                const models::ForwardInput& input, const data::Batch& batch, const Columns&,
                double) const override {
    const at::Tensor numbers_SL = segment_numbers(policy, hidden_nH, input, batch);
    const at::Tensor labels =
        device::sent(at::tensor(batch.segment_labels, at::TensorOptions(at::kFloat))
                         .to(at::kDouble)
                         .view({num_texts(batch), numbers_of_a_label()}),
                     numbers_SL.device());
    const Judged judged = config_.problem == LabelProblem::kNumbers ? of_numbers(numbers_SL, labels)
                          : config_.problem == LabelProblem::kClasses
                              ? of_classes(numbers_SL, labels)
                              : of_one_class(numbers_SL, labels);
    return loss_of_whole_segments(policy.mesh(), judged.sum, judged.metrics);
  }

 private:
  int64_t numbers_of_a_label() const {
    return config_.problem == LabelProblem::kOneClass ? 1 : config_.labels;
  }

  settings::ClassesConfig config_;
};

}  // namespace

std::shared_ptr<const Objective> classes_objective(const settings::ClassesConfig& config) {
  return std::make_shared<Classes>(config);
}

}  // namespace danlu::train
