// train/objectives/contrast.h: losses of vectors of texts that fit each other or do not.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "settings/objective_config.h"

namespace danlu::train {

/// An anchor and the texts that it has of its own, the positive first: rows of a matrix of vectors.
struct Contrasted {
  int64_t anchor = 0;
  std::vector<int64_t> texts;
};

/// f64 [B] each; of the anchors' cosines with what they are compared with.
struct ContrastLosses {
  at::Tensor losses_B;    ///< with grad
  at::Tensor positive_B;  ///< the cosine with the positive
  at::Tensor nearest_B;   ///< the largest of others; -inf where there is none
  at::Tensor others_B;    ///< the sum of these
  at::Tensor counts_B;    ///< how many these are
};

/// InfoNCE of each anchor as EmbeddingConfig says. unit_NH: vectors of length one, f64, with grad.
/// As ms-swift has it: what is nearer than the positive by the margin is left out among texts and
/// anchors, but not where positives are compared. Anchors that have fewer texts than
/// hard_negatives wants take them again, from the first on. Metrics are of texts alone.
ContrastLosses contrast_losses(const at::Tensor& unit_NH, std::span<const Contrasted> groups,
                               const settings::EmbeddingConfig& config);

/// The losses of pairs with these cosines and labels, f64 [P]: kCosine's and kMargin's.
at::Tensor pair_losses(const at::Tensor& cosines_P, const at::Tensor& labels_P,
                       settings::EmbeddingConfig::Loss loss);
/// kHardMargin's of all pairs of a batch, a scalar.
at::Tensor hard_margin_loss(const at::Tensor& cosines_P, const at::Tensor& labels_P);

/// Rows of length one; as torch's normalize, those of less than 1e-12 are divided by that.
at::Tensor at_length_one(const at::Tensor& vectors_NH);

}  // namespace danlu::train
