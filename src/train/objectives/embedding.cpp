#include "train/objectives/embedding.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>

#include <utility>

#include "base/error.h"
#include "data/groups.h"
#include "device/sent.h"
#include "parallel/agree.h"
#include "train/objectives/contrast.h"
#include "train/objectives/gathered_vectors.h"
#include "train/objectives/pairs.h"
#include "train/objectives/reward.h"
#include "train/segment_sums.h"

namespace danlu::train {
namespace {

using settings::EmbeddingConfig;
using EmbeddingLoss = EmbeddingConfig::Loss;

PassMetric sum_over_count(const at::Tensor& sum, const at::Tensor& count) {
  return {sum.detach().to(at::kDouble), count.detach().to(at::kDouble)};
}

/// Errors: DataError.
void require_group(const data::Group& group, const EmbeddingConfig& config) {
  const bool is_pair = group.positives.size() == 1 && group.negatives.empty();
  if (group.anchor < 0 || group.positives.size() != 1 || (config.has_pairs() && !is_pair)) {
    throw DataError(tr("[train] a row that is no text with one that fits it"),
                    tr("rows of --task_type embedding have \"messages\" and one conversation in "
                       "\"positive_messages\"; of --loss_type infonce \"negative_messages\" too"));
  }
  const bool needs = !config.has_pairs() && (config.hard_negatives > 0 || !config.in_batch);
  if (needs && group.negatives.empty())
    throw DataError(tr("[train] a row without \"negative_messages\""),
                    tr("--infonce_use_batch true without --infonce_hard_negatives compares with "
                       "the texts of other rows"));
}

class Embedding : public Objective {
 public:
  explicit Embedding(EmbeddingConfig config) : config_(std::move(config)) {}

  std::vector<std::string> metrics() const override {
    if (config_.loss == EmbeddingLoss::kContrast) return {"margin", "mean_neg", "mean_pos"};
    if (config_.loss == EmbeddingLoss::kCosine) return {"mae"};
    return {"mean_neg", "mean_pos"};
  }
  double weight(const data::Batch& batch) const override {
    if (batch.segment_starts.size() < 2) return 0;
    if (config_.loss == EmbeddingLoss::kHardMargin) return 1;
    double groups = 0;
    for (size_t i = 0; i < batch.segment_labels.size(); i += data::kGroupNumbers)
      groups += batch.segment_labels[i];
    return groups;
  }
  std::vector<Columns> prepare(const ForwardPasses& passes,
                               const std::vector<const data::Batch*>& whole) const override {
    parallel::together(passes.stage().mesh().batch_ranks(), [&] {
      for (const data::Batch* batch : whole)
        for (const data::Group& group : data::groups_of(*batch)) require_group(group, config_);
    });
    return std::vector<Columns>(whole.size());
  }
  Loss evaluate(const models::CausalLM& policy, const at::Tensor& hidden_nH,
                const models::ForwardInput& input, const data::Batch& batch, const Columns&,
                double) const override {
    const at::Tensor vectors_SH = segment_vectors(policy, hidden_nH, input, batch);
    const Judged judged =
        config_.has_pairs() ? of_pairs(vectors_SH, batch) : of_contrast(policy, vectors_SH, batch);
    Loss loss = loss_of_whole_segments(policy.mesh(), judged.sum, judged.metrics);
    if (policy.mesh().context().rank() == 0) loss.found_and_wanted = judged.found_and_wanted;
    return loss;
  }
  std::string found() const override { return config_.has_pairs() ? "cosine" : ""; }
  void take_part(const models::CausalLM& policy) const override {
    if (!config_.has_pairs() && config_.in_batch) gather_nothing(policy);
  }

 private:
  struct Judged {
    at::Tensor sum;
    std::map<std::string, PassMetric> metrics = {};
    at::Tensor found_and_wanted = {};
  };

  /// The sum over prefixes of what `of` makes of vectors of length one; of whole vectors where
  /// none are asked for.
  template <typename Of>
  at::Tensor over_prefixes(const at::Tensor& vectors_NH, Of of) const {
    if (config_.prefixes.empty()) return of(at_length_one(vectors_NH));
    at::Tensor sum;
    for (const EmbeddingConfig::Prefix& prefix : config_.prefixes) {
      const at::Tensor one =
          prefix.weight * of(at_length_one(vectors_NH.narrow(1, 0, prefix.size)));
      sum = sum.defined() ? sum + one : one;
    }
    return sum;
  }

  Judged of_pairs(const at::Tensor& vectors_SH, const data::Batch& batch) const {
    std::vector<int64_t> anchors, others;
    std::vector<double> labels;
    for (const data::Group& group : data::groups_of(batch)) {
      anchors.push_back(group.anchor);
      others.push_back(group.positives.front());
      labels.push_back(group.label);
    }
    const auto sent = [&](const at::Tensor& on_host) {
      return device::sent(on_host, vectors_SH.device());
    };
    const at::Tensor anchors_P = sent(at::tensor(anchors, at::TensorOptions(at::kLong))),
                     others_P = sent(at::tensor(others, at::TensorOptions(at::kLong))),
                     labels_P = sent(at::tensor(labels, at::TensorOptions(at::kDouble)));
    const auto cosines = [&](const at::Tensor& unit_SH) {
      return (unit_SH.index_select(0, anchors_P) * unit_SH.index_select(0, others_P)).sum(1);
    };
    const at::Tensor sum = over_prefixes(vectors_SH, [&](const at::Tensor& unit_SH) {
      const at::Tensor cosines_P = cosines(unit_SH);
      return config_.loss == EmbeddingLoss::kHardMargin
                 ? hard_margin_loss(cosines_P, labels_P)
                 : pair_losses(cosines_P, labels_P, config_.loss).sum();
    });
    const at::Tensor cosines_P = cosines(at_length_one(vectors_SH.detach()));
    const at::Tensor both_P2 = at::stack({cosines_P, labels_P}, 1);
    if (config_.loss == EmbeddingLoss::kCosine)
      return {sum, {{"mae", mean_of_pairs((cosines_P - labels_P).abs())}}, both_P2};
    const at::Tensor fits_P = (labels_P > 0.5).to(at::kDouble), differs_P = 1 - fits_P;
    return {sum,
            {{"mean_pos", sum_over_count((cosines_P * fits_P).sum(), fits_P.sum())},
             {"mean_neg", sum_over_count((cosines_P * differs_P).sum(), differs_P.sum())}},
            both_P2};
  }

  /// The value is that of this rank's anchors, the gradient that of all.
  Judged of_contrast(const models::CausalLM& policy, const at::Tensor& vectors_SH,
                     const data::Batch& batch) const {
    const GatheredVectors all = config_.in_batch
                                    ? gather_vectors(policy, vectors_SH, batch)
                                    : GatheredVectors{.vectors_NH = vectors_SH,
                                                      .groups = data::groups_of(batch),
                                                      .first = 0,
                                                      .count = static_cast<int64_t>(weight(batch))};
    std::vector<Contrasted> groups;
    for (const data::Group& group : all.groups) {
      Contrasted& one = groups.emplace_back();
      one.anchor = group.anchor;
      one.texts = group.positives;
      one.texts.insert(one.texts.end(), group.negatives.begin(), group.negatives.end());
    }
    const at::Tensor sum = over_prefixes(all.vectors_NH, [&](const at::Tensor& unit_NH) {
      const at::Tensor losses_B = contrast_losses(unit_NH, groups, config_).losses_B;
      const at::Tensor whole = losses_B.sum();
      return whole - whole.detach() + losses_B.detach().narrow(0, all.first, all.count).sum();
    });
    const ContrastLosses shown =
        contrast_losses(at_length_one(all.vectors_NH.detach()), groups, config_);
    const auto own = [&](const at::Tensor& numbers_B) {
      return numbers_B.narrow(0, all.first, all.count);
    };
    const at::Tensor positive = own(shown.positive_B), counts = own(shown.counts_B);
    const at::Tensor has_others = (counts > 0).to(at::kDouble);
    const at::Tensor margins =
        (positive - own(shown.nearest_B)).masked_fill(counts == 0, /*value=*/0);
    return {sum,
            {{"margin", sum_over_count(margins.sum(), has_others.sum())},
             {"mean_pos", mean_of_pairs(positive)},
             {"mean_neg", sum_over_count(own(shown.others_B).sum(), counts.sum())}}};
  }

  EmbeddingConfig config_;
};

bool is_mean(const arch::ModelConfig& model) {
  return model.encoder && model.encoder->pooling == arch::Pooling::kMean;
}

/// The tokens of which vectors are made: their rows, and which segment's each is.
std::pair<std::vector<int64_t>, std::vector<int64_t>> pooled_tokens(const arch::ModelConfig& model,
                                                                    const data::Batch& batch) {
  if (!model.encoder || model.encoder->pooling == arch::Pooling::kLast) return last_tokens(batch);
  if (model.encoder->pooling == arch::Pooling::kFirst) return read_tokens(model, batch);
  std::pair<std::vector<int64_t>, std::vector<int64_t>> all;
  for (size_t s = 0; s + 1 < batch.segment_starts.size(); ++s) {
    for (int64_t row = batch.segment_starts[s]; row < batch.segment_starts[s + 1]; ++row) {
      all.first.push_back(row);
      all.second.push_back(static_cast<int64_t>(s));
    }
  }
  return all;
}

/// Tokens of each segment, f64 [S, 1].
at::Tensor lengths_of(const data::Batch& batch) {
  std::vector<double> lengths;
  for (size_t s = 0; s + 1 < batch.segment_starts.size(); ++s)
    lengths.push_back(static_cast<double>(batch.segment_starts[s + 1] - batch.segment_starts[s]));
  return at::tensor(lengths, at::TensorOptions(at::kDouble)).unsqueeze(1);
}

}  // namespace

at::Tensor segment_vectors(const models::CausalLM& model, const at::Tensor& hidden_nH,
                           const models::ForwardInput& input, const data::Batch& batch) {
  const auto [rows, segments] = pooled_tokens(model.config(), batch);
  const at::TensorOptions options(at::kLong);
  const at::Tensor vectors_MH =
      model.token_vectors(hidden_nH, input, at::tensor(rows, options)).to(at::kDouble);
  const auto num_segments = static_cast<int64_t>(batch.segment_starts.size()) - 1;
  const at::Tensor own = sums_of_segments(
      vectors_MH, device::sent(at::tensor(segments, options), vectors_MH.device()), num_segments);
  if (is_mean(model.config())) return own / device::sent(lengths_of(batch), own.device());
  return parallel::Region(model.mesh().context().all(), /*sequence=*/false).leave(own);
}

std::shared_ptr<const Objective> embedding_objective(const EmbeddingConfig& config) {
  return std::make_shared<Embedding>(config);
}

}  // namespace danlu::train
