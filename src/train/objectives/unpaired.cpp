#include "train/objectives/unpaired.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <deque>
#include <utility>

#include "device/sent.h"
#include "train/batch_input.h"
#include "train/objectives/pairs.h"

namespace danlu::train {
namespace {

/// What answers are measured against.
struct UnpairedColumns {
  at::Tensor reference_S;  ///< as reference_logprobs() gives it
  double drift = 0;        ///< z, of the whole step
  /// How many answers of the whole step there are for each that was liked, and for each that was
  /// not; 0 where one kind is not there, so that nothing lies between them.
  double for_each_liked = 0, for_each_disliked = 0;
};

class Unpaired : public Objective {
 public:
  Unpaired(const settings::UnpairedConfig& config, std::shared_ptr<const FrozenModel> reference)
      : config_(config), reference_(std::move(reference)) {}

  std::vector<std::string> metrics() const override {
    return {"rewards/chosen", "rewards/rejected", "rewards/margins",
            "logps/chosen",   "logps/rejected",   "kl"};
  }
  double weight(const data::Batch& batch) const override { return num_pairs(batch); }
  bool spans_batches() const override { return true; }
  std::optional<data::Batch> trained_part(const data::Batch& batch) const override {
    return every_second(batch, 0);
  }
  std::vector<Columns> prepare(const ForwardPasses& passes,
                               const std::vector<const data::Batch*>& whole) const override;
  Loss evaluate(const models::CausalLM& policy, const at::Tensor& hidden_nH,
                const models::ForwardInput& input, const data::Batch& batch, const Columns& columns,
                double scale) const override;

 private:
  /// z of the whole step, on the last stage. Collective.
  double drift(const ForwardPasses& passes, const std::vector<const data::Batch*>& whole) const;
  /// Puts in how many answers of the whole step there are for each of a kind. Collective.
  static void count_kinds(const parallel::Mesh& mesh, const std::vector<const data::Batch*>& whole,
                          UnpairedColumns& columns);

  settings::UnpairedConfig config_;
  std::shared_ptr<const FrozenModel> reference_;
};

double Unpaired::drift(const ForwardPasses& passes,
                       const std::vector<const data::Batch*>& whole) const {
  if (!config_.measures_drift) return 0;
  std::deque<data::Batch> made;
  std::vector<const data::Batch*> others;
  for (const data::Batch* batch : whole)
    others.push_back(&made.emplace_back(every_second(*batch, 1)));
  const parallel::Mesh& mesh = passes.stage().mesh();
  const OwnParts parts(mesh, others);
  const auto now = policy_logprobs(passes, parts.batches());
  const auto before = reference_logprobs(reference_.get(), passes, parts.batches());
  std::vector<double> sums = {0, 0};
  for (size_t i = 0; i < now.size(); ++i) {
    if (now[i].defined()) sums[0] += (now[i] - before[i]).sum().item<double>();
    sums[1] += weight(*whole[i]);
  }
  sums = sums_of_step(mesh, sums);
  return std::max(0.0, sums[0] / std::max(1.0, sums[1]));
}

void Unpaired::count_kinds(const parallel::Mesh& mesh, const std::vector<const data::Batch*>& whole,
                           UnpairedColumns& columns) {
  std::vector<double> kinds = {0, 0};
  for (const data::Batch* batch : whole)
    for (const float liked : every_second(*batch, 0).segment_values) ++kinds[liked > 0 ? 0 : 1];
  kinds = sums_of_step(mesh, kinds);
  const double all = kinds[0] + kinds[1];
  if (kinds[0] == 0 || kinds[1] == 0) return;
  columns.for_each_liked = all / kinds[0];
  columns.for_each_disliked = all / kinds[1];
}

std::vector<Columns> Unpaired::prepare(const ForwardPasses& passes,
                                       const std::vector<const data::Batch*>& whole) const {
  const parallel::Mesh& mesh = passes.stage().mesh();
  require_pairs(mesh, whole);
  UnpairedColumns of_step;
  of_step.drift = drift(passes, whole);
  count_kinds(mesh, whole, of_step);
  const TrainedParts parts(*this, mesh, whole);
  const auto sums = reference_logprobs(reference_.get(), passes, parts.batches());
  std::vector<Columns> columns;
  for (size_t i = 0; i < whole.size(); ++i) {
    of_step.reference_S = sums[i];
    columns.push_back(Columns::of(of_step));
  }
  return columns;
}

Loss Unpaired::evaluate(const models::CausalLM& policy, const at::Tensor& hidden_nH,
                        const models::ForwardInput& input, const data::Batch& batch,
                        const Columns& columns, double) const {
  const at::Tensor logps_S = segment_logprobs(policy, hidden_nH, input, batch);
  const auto& against = columns.as<UnpairedColumns>();
  const at::Tensor ratio_S = logps_S - against.reference_S;
  const double z = against.drift;
  const at::Tensor liked_S =
      device::sent(at::tensor(batch.segment_values, at::TensorOptions(at::kFloat)).to(at::kDouble),
                   logps_S.device());
  const at::Tensor disliked_S = 1 - liked_S;
  const at::Tensor gain_S = config_.beta * (ratio_S - z);
  const at::Tensor losses_S = config_.liked_weight * liked_S * (1 - at::sigmoid(gain_S)) +
                              config_.disliked_weight * disliked_S * (1 - at::sigmoid(-gain_S));
  const at::Tensor rewards_S = config_.beta * ratio_S.detach(), shown_S = logps_S.detach();
  const at::Tensor num_liked = liked_S.sum(), num_disliked = disliked_S.sum();
  const at::Tensor all = num_liked + num_disliked;
  const double of_liked = against.for_each_liked, of_disliked = against.for_each_disliked;
  const at::Tensor lead = ((of_liked * liked_S - of_disliked * disliked_S) * rewards_S).sum();
  return loss_of_whole_segments(
      policy.mesh(), losses_S.sum(),
      {{"rewards/chosen", {(rewards_S * liked_S).sum(), num_liked}},
       {"rewards/rejected", {(rewards_S * disliked_S).sum(), num_disliked}},
       {"rewards/margins", {lead, of_liked > 0 ? all : all * 0}},
       {"logps/chosen", {(shown_S * liked_S).sum(), num_liked}},
       {"logps/rejected", {(shown_S * disliked_S).sum(), num_disliked}},
       {"kl", {z * all, all}}});
}

}  // namespace

std::shared_ptr<const Objective> unpaired_objective(const settings::UnpairedConfig& config,
                                                    std::shared_ptr<const FrozenModel> reference) {
  return std::make_shared<Unpaired>(config, std::move(reference));
}

}  // namespace danlu::train
