#include "train/objectives/contrast.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "device/sent.h"

namespace danlu::train {
namespace {

using settings::EmbeddingConfig;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
/// The distance, 1 - cosine, from which on texts that do not fit are far enough.
constexpr double kFarEnough = 0.5;

/// The texts of all anchors one after the other.
struct Texts {
  std::vector<int64_t> anchors, rows;  ///< of the matrix
  std::vector<int64_t> owners;         ///< of each text the number of its anchor
  std::vector<int64_t> positives;      ///< of each anchor the place of its positive among `rows`
};

Texts texts_of(std::span<const Contrasted> groups, const EmbeddingConfig& config) {
  Texts all;
  for (size_t b = 0; b < groups.size(); ++b) {
    const std::vector<int64_t>& texts = groups[b].texts;
    const int64_t negatives = std::ssize(texts) - 1;
    const int64_t wanted = config.hard_negatives > 0 ? config.hard_negatives : negatives;
    if (wanted > 0 && negatives == 0)
      throw InternalError("[contrast] hard negatives of a row that has none");
    all.anchors.push_back(groups[b].anchor);
    all.positives.push_back(std::ssize(all.rows));
    all.rows.push_back(texts[0]);
    for (int64_t n = 0; n < wanted; ++n)
      all.rows.push_back(texts[static_cast<size_t>(1 + n % negatives)]);
    all.owners.resize(all.rows.size(), static_cast<int64_t>(b));
  }
  return all;
}

at::Tensor on_device_of(const at::Tensor& like, const std::vector<int64_t>& numbers) {
  return device::sent(at::tensor(numbers, at::TensorOptions(at::kLong)), like.device());
}

}  // namespace

at::Tensor at_length_one(const at::Tensor& vectors_NH) {
  const at::Tensor lengths_N1 = vectors_NH.square().sum(1, /*keepdim=*/true).sqrt();
  return vectors_NH / lengths_N1.clamp_min(1e-12);
}

ContrastLosses contrast_losses(const at::Tensor& unit_NH, std::span<const Contrasted> groups,
                               const EmbeddingConfig& config) {
  const Texts all = texts_of(groups, config);
  const at::Tensor anchors_BH = unit_NH.index_select(0, on_device_of(unit_NH, all.anchors));
  const at::Tensor texts_MH = unit_NH.index_select(0, on_device_of(unit_NH, all.rows));
  const at::Tensor positives_B1 = on_device_of(unit_NH, all.positives).unsqueeze(1);
  const at::Tensor numbers_B1 = at::arange(std::ssize(groups), positives_B1.options()).unsqueeze(1);
  const at::Tensor places_1M = at::arange(texts_MH.size(0), positives_B1.options()).unsqueeze(0);
  const at::Tensor is_positive_BM = places_1M == positives_B1;
  const at::Tensor is_own_BM = on_device_of(unit_NH, all.owners).unsqueeze(0) == numbers_B1;
  const at::Tensor cosines_BM = at::matmul(anchors_BH, texts_MH.t());
  const at::Tensor positive_B1 = cosines_BM.gather(1, positives_B1);

  const at::Tensor too_near_B1 = positive_B1.detach() + config.fake_margin;
  const bool masks = config.in_batch && config.masks_fakes;
  const auto without_fakes = [&](const at::Tensor& cosines) {
    return masks ? cosines.masked_fill(cosines > too_near_B1, -kInfinity) : cosines;
  };
  std::vector<at::Tensor> parts = {
      config.in_batch ? without_fakes(cosines_BM)
                      : cosines_BM.masked_fill(is_own_BM.logical_not(), -kInfinity)};
  if (config.in_batch && config.among_anchors) {
    const at::Tensor is_itself_BB = numbers_B1.t() == numbers_B1;
    parts.push_back(without_fakes(
        at::matmul(anchors_BH, anchors_BH.t()).masked_fill(is_itself_BB, -kInfinity)));
  }
  if (config.in_batch && config.among_positives) {
    const at::Tensor positives_BH = texts_MH.index_select(0, positives_B1.squeeze(1));
    parts.push_back(at::matmul(positives_BH, texts_MH.t()).masked_fill(is_positive_BM, -kInfinity));
  }
  const at::Tensor logs = at::log_softmax(at::cat(parts, 1) / config.temperature, 1);

  const at::Tensor seen_BM = config.in_batch ? is_positive_BM.logical_not()
                                             : is_own_BM.logical_and(is_positive_BM.logical_not());
  const at::Tensor others_BM = cosines_BM.detach();
  const at::Tensor hidden_BM = seen_BM.logical_not();
  return {.losses_B = -logs.gather(1, positives_B1).squeeze(1),
          .positive_B = positive_B1.detach().squeeze(1),
          .nearest_B = others_BM.masked_fill(hidden_BM, -kInfinity).amax(1),
          .others_B = others_BM.masked_fill(hidden_BM, 0).sum(1),
          .counts_B = seen_BM.sum(1).to(at::kDouble)};
}

at::Tensor pair_losses(const at::Tensor& cosines_P, const at::Tensor& labels_P,
                       EmbeddingConfig::Loss loss) {
  if (loss == EmbeddingConfig::Loss::kCosine) return (cosines_P - labels_P).square();
  const at::Tensor distances_P = 1 - cosines_P;
  return 0.5 * (labels_P * distances_P.square() +
                (1 - labels_P) * at::relu(kFarEnough - distances_P).square());
}

at::Tensor hard_margin_loss(const at::Tensor& cosines_P, const at::Tensor& labels_P) {
  const at::Tensor distances_P = 1 - cosines_P, known_P = distances_P.detach();
  const at::Tensor fits_P = labels_P > 0.5, differs_P = fits_P.logical_not();
  const at::Tensor fitting = known_P.masked_select(fits_P),
                   other = known_P.masked_select(differs_P);
  at::Tensor loss = (distances_P * 0).sum();
  if (other.numel() > 0) {
    const at::Tensor limit = fitting.numel() > 1 ? fitting.max() : other.mean();
    const at::Tensor is_hard_P = differs_P.logical_and(known_P < limit);
    loss = loss + (at::relu(kFarEnough - distances_P).square() * is_hard_P).sum();
  }
  if (fitting.numel() > 0) {
    const at::Tensor limit = other.numel() > 1 ? other.min() : fitting.mean();
    const at::Tensor is_hard_P = fits_P.logical_and(known_P > limit);
    loss = loss + (distances_P.square() * is_hard_P).sum();
  }
  return loss;
}

}  // namespace danlu::train
