#include "train/objectives/preference.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/log_sigmoid.h>
#include <ATen/ops/relu.h>

#include <algorithm>
#include <utility>

#include "base/ignore_label.h"
#include "device/sent.h"
#include "train/batch_input.h"
#include "train/objectives/pairs.h"

namespace danlu::train {
namespace {

using settings::LikelihoodTerm, settings::PairLoss, settings::PreferenceConfig;

/// A column for each answer of P pairs.
struct Answers {
  at::Tensor chosen_P, rejected_P;

  at::Tensor lead_P() const { return chosen_P - rejected_P; }
  Answers operator/(const Answers& other) const {
    return {chosen_P / other.chosen_P, rejected_P / other.rejected_P};
  }
  Answers operator-(const Answers& other) const {
    return {chosen_P - other.chosen_P, rejected_P - other.rejected_P};
  }
  Answers operator*(double factor) const { return {chosen_P * factor, rejected_P * factor}; }
};

Answers answers_of(const at::Tensor& values_S) {
  const at::Tensor of_P2 = values_S.view({-1, 2});
  return {of_P2.select(1, 0), of_P2.select(1, 1)};
}

/// The odds of a probability p as p / (1 - p), of which this is the logarithm.
at::Tensor log_odds(const at::Tensor& logprob_P) {
  // A probability that rounds to 1 has no odds.
  const at::Tensor below_0_P = logprob_P.clamp_max(-1e-7);
  return below_0_P - (-below_0_P.exp()).log1p();
}

/// The tokens that follow those of prompts in chosen answers' segments, as targets, of a whole
/// batch.
std::vector<int64_t> prompt_targets(const data::Batch& batch) {
  std::vector<int64_t> targets(batch.ids.size(), kIgnoreLabel);
  for (size_t s = 0; s + 1 < batch.segment_starts.size(); s += 2) {
    for (int32_t row = batch.segment_starts[s]; row + 1 < batch.segment_starts[s + 1]; ++row) {
      const auto i = static_cast<size_t>(row);
      if (batch.targets[i] == kIgnoreLabel) targets[i] = batch.ids[i + 1];
    }
  }
  return targets;
}

/// What of `targets` this rank of the context axis has.
std::vector<int64_t> own_targets(const parallel::Mesh& mesh, const data::Batch& batch,
                                 std::vector<int64_t> targets) {
  data::Batch whole = batch;
  whole.targets = std::move(targets);
  return own_part(mesh, whole).targets;
}

/// What of a micro-batch the loss needs beside its log-probabilities.
struct PreferenceColumns {
  at::Tensor lengths_S;    ///< of answers, f64, on the host
  at::Tensor reference_S;  ///< as reference_logprobs() gives it; undefined without a reference
  // Where prompts are learnt: their targets that this rank of the context axis has, and how many
  // the whole batch has.
  std::vector<int64_t> prompts;
  double prompt_tokens = 0;
  /// Pairs of the whole step for each of its tokens that are kept likely. The step divides by its
  /// pairs; this makes a mean over its tokens of that.
  double pairs_of_token = 0;
};

using PassMetrics = std::map<std::string, PassMetric>;

class Preference : public Objective {
 public:
  Preference(const PreferenceConfig& config, std::shared_ptr<const FrozenModel> reference)
      : config_(config), reference_(std::move(reference)) {}

  std::vector<std::string> metrics() const override {
    std::vector<std::string> names = {"rewards/chosen",  "rewards/rejected", "rewards/accuracies",
                                      "rewards/margins", "logps/chosen",     "logps/rejected"};
    if (config_.likelihood == LikelihoodTerm::kAnswerMeans) {
      names.push_back("sft_loss");
    } else if (config_.likelihood != LikelihoodTerm::kNone) {
      names.push_back("nll_loss");
    }
    if (config_.loss == PairLoss::kOdds)
      names.insert(names.end(), {"log_odds_ratio", "log_odds_chosen"});
    return names;
  }
  double weight(const data::Batch& batch) const override { return num_pairs(batch); }
  bool spans_batches() const override {
    return config_.likelihood == LikelihoodTerm::kAnswerTokens || takes_prompts();
  }
  std::vector<Columns> prepare(const ForwardPasses& passes,
                               const std::vector<const data::Batch*>& whole) const override;
  Loss evaluate(const models::CausalLM& policy, const at::Tensor& hidden_nH,
                const models::ForwardInput& input, const data::Batch& batch, const Columns& columns,
                double scale) const override;

 private:
  bool takes_prompts() const { return config_.likelihood == LikelihoodTerm::kAllTokens; }
  /// The losses of P pairs. scored: log-probabilities, or their logarithmic ratios to the
  /// reference's, of answers or of a token of them.
  at::Tensor pair_losses(const Answers& scored) const;

  /// ratios: logarithmic ratios to the reference's probabilities, where there is one.
  PassMetrics figures(const Answers& sums_P, const Answers& ratios_P,
                      const Answers& scored_P) const;

  PreferenceConfig config_;
  std::shared_ptr<const FrozenModel> reference_;
};

std::vector<Columns> Preference::prepare(const ForwardPasses& passes,
                                         const std::vector<const data::Batch*>& whole) const {
  const parallel::Mesh& mesh = passes.stage().mesh();
  require_pairs(mesh, whole);
  std::vector<PreferenceColumns> found(whole.size());
  double pairs = 0, tokens = 0;  // of chosen answers, and prompts where they are learnt
  for (size_t i = 0; i < whole.size(); ++i) {
    found[i].lengths_S = answer_lengths(*whole[i]);
    pairs += num_pairs(*whole[i]);
    tokens += answers_of(found[i].lengths_S).chosen_P.sum().item<double>();
    if (!takes_prompts()) continue;
    std::vector<int64_t> targets = prompt_targets(*whole[i]);
    found[i].prompt_tokens =
        static_cast<double>(targets.size() - static_cast<size_t>(std::count(
                                                 targets.begin(), targets.end(), kIgnoreLabel)));
    tokens += found[i].prompt_tokens;
    found[i].prompts = own_targets(mesh, *whole[i], std::move(targets));
  }
  if (spans_batches()) {
    const std::vector<double> of_step = sums_of_step(mesh, {pairs, tokens});
    for (PreferenceColumns& one : found) one.pairs_of_token = of_step[0] / of_step[1];
  }
  if (config_.has_reference) {
    const OwnParts parts(mesh, whole);
    const auto sums = reference_logprobs(reference_.get(), passes, parts.batches());
    for (size_t i = 0; i < whole.size(); ++i) found[i].reference_S = sums[i];
  }
  std::vector<Columns> columns;
  for (PreferenceColumns& one : found) columns.push_back(Columns::of(std::move(one)));
  return columns;
}

at::Tensor Preference::pair_losses(const Answers& scored) const {
  if (config_.loss == PairLoss::kOdds) {
    const at::Tensor ratio_P = log_odds(scored.chosen_P) - log_odds(scored.rejected_P);
    return -config_.beta * at::log_sigmoid(ratio_P);
  }
  const at::Tensor lead_P = scored.lead_P();
  if (config_.loss == PairLoss::kSquare) return (lead_P - 0.5 / config_.beta).square();
  const at::Tensor margin_P = config_.beta * lead_P - config_.gamma;
  if (config_.loss == PairLoss::kHinge) return at::relu(1 - margin_P);
  const double smoothing = config_.label_smoothing;
  const at::Tensor as_labelled_P = -at::log_sigmoid(margin_P) * (1 - smoothing);
  if (smoothing == 0) return as_labelled_P;
  const at::Tensor flipped_P = -at::log_sigmoid(-margin_P) * smoothing;
  if (config_.robust) return (as_labelled_P - flipped_P) / (1 - 2 * smoothing);
  return as_labelled_P + flipped_P;
}

PassMetrics Preference::figures(const Answers& sums_P, const Answers& ratios_P,
                                const Answers& scored_P) const {
  // With a reference users know sums here, also of IPO, whose loss takes averages.
  const Answers rewards_P = (config_.has_reference ? ratios_P : scored_P) * config_.beta;
  const Answers shown_P = config_.has_reference ? sums_P : scored_P;
  PassMetrics metrics = {
      {"rewards/chosen", mean_of_pairs(rewards_P.chosen_P)},
      {"rewards/rejected", mean_of_pairs(rewards_P.rejected_P)},
      {"rewards/accuracies", mean_of_pairs((rewards_P.lead_P() > 0).to(at::kDouble))},
      {"rewards/margins", mean_of_pairs(rewards_P.lead_P())},
      {"logps/chosen", mean_of_pairs(shown_P.chosen_P)},
      {"logps/rejected", mean_of_pairs(shown_P.rejected_P)}};
  if (config_.loss == PairLoss::kOdds) {
    const at::Tensor ratio_P = log_odds(scored_P.chosen_P) - log_odds(scored_P.rejected_P);
    metrics["log_odds_chosen"] = mean_of_pairs(ratio_P);
    metrics["log_odds_ratio"] = mean_of_pairs(at::log_sigmoid(ratio_P));
  }
  return metrics;
}

Loss Preference::evaluate(const models::CausalLM& policy, const at::Tensor& hidden_nH,
                          const models::ForwardInput& input, const data::Batch& batch,
                          const Columns& columns, double) const {
  const auto& found = columns.as<PreferenceColumns>();
  const std::vector<int64_t> no_prompts(batch.targets.size(), kIgnoreLabel);
  const at::Tensor sums = segment_logprobs(policy, hidden_nH, input, batch,
                                           takes_prompts() ? found.prompts : no_prompts);
  const Answers sums_P = answers_of(sums.select(0, 0));
  const Answers lengths_P = answers_of(device::sent(found.lengths_S, sums.device()));
  Answers ratios_P = sums_P;
  if (config_.has_reference) ratios_P = ratios_P - answers_of(found.reference_S);
  const Answers scored_P = config_.averages ? ratios_P / lengths_P : ratios_P;
  at::Tensor loss = pair_losses(scored_P).sum();
  PassMetrics metrics = figures(sums_P, ratios_P, scored_P);
  if (config_.likelihood == LikelihoodTerm::kAnswerMeans) {
    const at::Tensor means_P = -(sums_P / lengths_P).chosen_P;
    loss = loss + config_.likelihood_weight * means_P.sum();
    metrics["sft_loss"] = mean_of_pairs(means_P);
  } else if (config_.likelihood != LikelihoodTerm::kNone) {
    at::Tensor tokens = lengths_P.chosen_P.sum(), likelihood = sums_P.chosen_P.sum();
    if (takes_prompts()) {
      likelihood = likelihood + sums.select(0, 1).sum();
      tokens = tokens + found.prompt_tokens;
    }
    loss = loss - config_.likelihood_weight * found.pairs_of_token * likelihood;
    metrics["nll_loss"] = {-likelihood.detach(), tokens};
  }
  return loss_of_whole_segments(policy.mesh(), loss, metrics);
}

}  // namespace

std::shared_ptr<const Objective> preference_objective(
    const PreferenceConfig& config, std::shared_ptr<const FrozenModel> reference) {
  return std::make_shared<Preference>(config, std::move(reference));
}

}  // namespace danlu::train
