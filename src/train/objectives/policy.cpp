#include "train/objectives/policy.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/sigmoid.h>

#include <numeric>
#include <utility>

#include "base/error.h"
#include "device/sent.h"
#include "parallel/agree.h"
#include "train/batch_input.h"
#include "train/objectives/drawn_tokens.h"

namespace danlu::train {
namespace {

using settings::LossMean, settings::RatioGate, settings::RatioLevel;

constexpr const char* kKl = "kl";
constexpr const char* kEntropy = "entropy";
constexpr const char* kClippedLow = "clip_ratio/low_mean";
constexpr const char* kClippedHigh = "clip_ratio/high_mean";
constexpr const char* kClipped = "clip_ratio/region_mean";
constexpr const char* kHeldWeights = "cispo_clip_ratio";

/// What a mean over tokens is divided by.
double num_tokens(const data::Batch& batch) {
  const auto counted = batch.token_columns.find(kCountColumn);
  if (counted == batch.token_columns.end()) return static_cast<double>(batch.num_targets);
  return std::accumulate(counted->second.begin(), counted->second.end(), 0.0);
}

/// What the reference gave, where the batch has no column of it.
struct PolicyColumns {
  at::Tensor reference_M;  ///< log-probabilities, f64
};

class Policy : public Objective {
 public:
  Policy(const settings::PolicyLoss& settings, std::shared_ptr<const FrozenModel> reference)
      : settings_(settings), reference_(std::move(reference)) {}

  std::vector<std::string> metrics() const override {
    std::vector<std::string> names = {kEntropy};
    if (settings_.gate == RatioGate::kClip)
      names.insert(names.end(), {kClippedLow, kClippedHigh, kClipped});
    if (settings_.gate == RatioGate::kWeight) names.emplace_back(kHeldWeights);
    if (settings_.kl > 0) names.insert(names.begin(), kKl);
    return names;
  }

  double weight(const data::Batch& batch) const override {
    if (batch.is_filling) return 0;
    const auto answers = static_cast<double>(num_answers(batch));
    switch (settings_.mean) {
      case LossMean::kRows:
        return answers;
      case LossMean::kTokens:
        return num_tokens(batch);
      case LossMean::kConstant:
        return answers * static_cast<double>(settings_.longest);
    }
    throw InternalError("[policy] LossMean");
  }

  std::vector<Columns> prepare(const ForwardPasses& passes,
                               const std::vector<const data::Batch*>& batches) const override {
    std::vector<Columns> columns(batches.size());
    if (settings_.kl == 0 || is_known(passes.stage().mesh(), batches)) return columns;
    const OwnParts parts(passes.stage().mesh(), batches);
    ask_reference(reference_.get(), passes, [&](const ForwardPasses& of, bool adapters) {
      of.run(parts.batches(), {.adapters = adapters},
             [&](size_t i, const at::Tensor& hidden_nH, const models::ForwardInput& input) {
               const DrawnTokens drawn(*parts.batches()[i], hidden_nH.device());
               columns[i] = Columns::of(
                   PolicyColumns{of.stage()
                                     .token_logprobs(hidden_nH, input, drawn.rows_M, drawn.ids_M,
                                                     {.temperature = settings_.temperature})
                                     .logprobs_M.to(at::kDouble)});
             });
    });
    return columns;
  }

  Loss evaluate(const models::CausalLM& policy, const at::Tensor& hidden_nH,
                const models::ForwardInput& input, const data::Batch& batch, const Columns& columns,
                double) const override {
    const parallel::Context& context = policy.mesh().context();
    const DrawnTokens drawn(batch, hidden_nH.device(), context.all());
    const ops::TokenLogprobs found =
        policy.token_logprobs(hidden_nH, input, drawn.rows_M, drawn.ids_M,
                              {.temperature = settings_.temperature, .entropy = true});
    const at::Tensor logprobs_M = found.logprobs_M.to(at::kDouble);
    const at::Tensor old_M = drawn.column(batch, kOldColumn);
    const at::Tensor moved_M = logprobs_M - (old_M.defined() ? old_M : logprobs_M.detach());
    const at::Tensor advantage_M = drawn.needed_column(batch, kAdvantageColumn);
    // The ratio of an answer as a whole is that of each of its tokens (GSPO).
    const bool of_tokens = settings_.ratio == RatioLevel::kToken;
    const at::Tensor ratio_M =
        (of_tokens ? moved_M : drawn.means_of_answers(moved_M).index_select(0, drawn.answer_M))
            .exp();
    at::Tensor loss_M = gated_losses(settings_, ratio_M, logprobs_M, advantage_M);
    Loss loss;
    const at::Tensor count = at::scalar_tensor(drawn.rows_M.numel(), at::kLong);
    if (settings_.kl > 0) {
      const auto* const asked = columns.find<PolicyColumns>();
      const at::Tensor reference_M = asked ? device::sent(asked->reference_M, logprobs_M.device())
                                           : drawn.column(batch, kReferenceColumn);
      if (!reference_M.defined()) throw InternalError("[policy] a KL term without a reference");
      const at::Tensor distance_M = reference_M - logprobs_M;
      const at::Tensor kl_M = distance_M.exp() - distance_M - 1;
      const at::Tensor weight_M = drawn.column(batch, kDistanceColumn);
      loss_M = loss_M + (weight_M.defined() ? kl_M * weight_M : kl_M) * settings_.kl;
      loss.metrics[kKl] = {kl_M.detach().sum(), count};
    }
    loss.sum = settings_.mean == LossMean::kRows ? drawn.part_of_means(loss_M).sum() : loss_M.sum();
    loss.metrics[kEntropy] = {found.entropies_M.to(at::kDouble).sum(), count};
    // Every rank of the context axis has the same answers.
    const int64_t answers = context.rank() == 0 ? num_answers(batch) : 0;
    if (settings_.gate != RatioGate::kSoft)
      add_clipped(drawn, ratio_M.detach(), advantage_M, answers, &loss);
    return loss;
  }

 private:
  /// Whether batches have the column: a rank without batches asks the others. Collective.
  static bool is_known(const parallel::Mesh& mesh, const std::vector<const data::Batch*>& batches) {
    const bool has_column =
        !batches.empty() && batches.front()->token_columns.count(kReferenceColumn) > 0;
    return parallel::largest_of(mesh.batch_ranks(), has_column ? 1 : 0) == 1;
  }
  /// Shares of tokens, or of answers where the ratio is theirs.
  void add_clipped(const DrawnTokens& drawn, const at::Tensor& ratio_M,
                   const at::Tensor& advantage_M, int64_t answers, Loss* loss) const {
    const bool is_weight = settings_.gate == RatioGate::kWeight;
    const double highest = is_weight ? settings_.clip_high : 1 + settings_.clip_high;
    const at::Tensor low_M =
        (ratio_M < 1 - settings_.clip_low).logical_and(advantage_M < 0).to(at::kDouble);
    const at::Tensor high_M = (ratio_M > highest).logical_and(advantage_M > 0).to(at::kDouble);
    const bool of_tokens = settings_.ratio == RatioLevel::kToken;
    const auto share = [&](const at::Tensor& clipped_M) {
      const at::Tensor sum = of_tokens ? clipped_M.sum() : drawn.part_of_means(clipped_M).sum();
      return PassMetric{sum,
                        at::scalar_tensor(of_tokens ? drawn.rows_M.numel() : answers, at::kLong)};
    };
    if (is_weight) {
      loss->metrics[kHeldWeights] = share(high_M);
      return;
    }
    loss->metrics[kClippedLow] = share(low_M);
    loss->metrics[kClippedHigh] = share(high_M);
    loss->metrics[kClipped] = share(low_M + high_M);
  }

  settings::PolicyLoss settings_;
  std::shared_ptr<const FrozenModel> reference_;
};

}  // namespace

at::Tensor gated_losses(const settings::PolicyLoss& settings, const at::Tensor& ratio_M,
                        const at::Tensor& logprobs_M, const at::Tensor& advantage_M) {
  if (settings.gate == RatioGate::kWeight)
    return -at::clamp(ratio_M.detach(), {}, settings.clip_high) * advantage_M * logprobs_M;
  if (settings.gate == RatioGate::kSoft) {
    const at::Tensor is_positive_M = (advantage_M > 0).to(at::kDouble);
    const at::Tensor tau_M =
        settings.tau_negative + (settings.tau_positive - settings.tau_negative) * is_positive_M;
    return -at::sigmoid(tau_M * (ratio_M - 1)) * (4 / tau_M) * advantage_M;
  }
  const at::Tensor held_M =
      settings.ratio_limit > 0 ? at::clamp(ratio_M, {}, settings.ratio_limit) : ratio_M;
  const at::Tensor clipped_M = at::clamp(ratio_M, 1 - settings.clip_low, 1 + settings.clip_high);
  return -at::minimum(held_M * advantage_M, clipped_M * advantage_M);
}

std::shared_ptr<const Objective> policy_objective(
    const settings::PolicyLoss& settings, const std::shared_ptr<const FrozenModel>& reference) {
  return std::make_shared<const Policy>(settings, reference);
}

}  // namespace danlu::train
