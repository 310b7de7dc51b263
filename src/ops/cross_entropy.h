// ops/cross_entropy.h: summed cross entropy over target tokens, and the fused head that never holds
// all logits.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

#include "base/ignore_label.h"
#include "ops/main_grad.h"

namespace danlu::ops {

struct CrossEntropy {
  at::Tensor sum;           ///< f32 (f64 for f64) scalar with grad
  int64_t num_targets = 0;  ///< targets that are not kIgnoreLabel
  /// The number of targets that have the largest logit (ties count): int64 scalar, there when it is
  /// read.
  at::Tensor num_correct;
  /// HeadOptions' factor as a scalar of `sum`'s type, of head_cross_entropy: a backward that begins
  /// with this very tensor need not read a number from its device.
  at::Tensor factor = {};
};

/// A head of which this rank has some rows. Both functions work in place, in the same order on
/// every rank; wide (f32 or f64) tensors.
struct VocabularyShare {
  int64_t first_row = 0;
  int64_t vocab = 0;     ///< rows in all; 0: the head is whole
  int64_t max_rows = 0;  ///< of any rank
  std::function<void(at::Tensor&)> sum_over_ranks = {}, max_over_ranks = {};
  bool is_part() const { return vocab > 0; }
};

struct HeadOptions {
  /// Adds z_loss_weight * (largest logit)^2 per target token (Baichuan2).
  double z_loss_weight = 0.0;
  /// The factor the caller is going to put on `sum` before backward (loss scale / global targets):
  /// gradients are made with it, so f16 ones keep their range and no second pass scales them.
  /// Any other factor still gives the right gradient, but where weights have a main gradient, which
  /// has theirs already: InternalError.
  double grad_scale = 1.0;
  /// Tokens whose logits exist at one time; 0: as many as fit in about 64 MB of f32, of
  /// large vocabularies 256: each chunk is a pass over the gradient of the weight.
  int64_t chunk_tokens = 0;
  /// Then losses are those of all rows, and gradients of `hidden` and of an addition's low_NR this
  /// rank's part of the sum.
  VocabularyShare share = {};
  /// Logits become cap * tanh(logit / cap); 0: they stay.
  double softcap = 0.0;
  /// Added to the logits, [V] of the weight's dtype, or this rank's rows of it; undefined: nothing.
  /// Grad goes through it too, to `bias_main` if that has a place.
  at::Tensor bias_V = {};
  MainGradPtr bias_main = {};
  /// The main gradient of the weight. Where it has a sum before the backward, the gradient is in it
  /// when the forward pass is over, made with grad_scale, and backward must bring just that factor.
  MainGradPtr main_grad = {};
};

/// cap * tanh(x / cap), computed in f32 (f64 for f64) and rounded to x's type; without a cap (0) x
/// itself.
at::Tensor capped(const at::Tensor& x, double cap);

/// sum over targets of logsumexp(logits) - logits[target].
/// Shapes  logits_NV [N, V]; targets_N int64 [N], kIgnoreLabel skipped. Grad  through logits.
/// Errors  ModelError for a target outside [0, V).
CrossEntropy cross_entropy(const at::Tensor& logits_NV, const at::Tensor& targets_N,
                           double z_loss_weight = 0.0);

/// A low-rank addition to the head: low_NR weight_VR^T is added to the logits (LoRA's B, and its
/// scaled A h). Undefined tensors: none.
struct HeadAddition {
  at::Tensor low_NR, weight_VR;
  MainGradPtr main_grad = {};  ///< of weight_VR, as HeadOptions'
};

/// cross_entropy(hidden weight^T + bias + addition), capped: logits exist for one chunk of target
/// tokens at a time; gradients of every factor are made in the forward pass and only scaled in
/// backward. No copy of a weight is made where the device multiplies its dtype. Shapes  hidden_NH
/// [N, H]; weight_VH [V, H]; targets_N on the host, or, at the price of waiting,
///         on a device.
/// Dtypes  logits are rounded to hidden's dtype, then f32, as Hugging Face does; the weight's
///         gradient is summed over chunks in f32.
/// Grad    through every factor and the bias (once: no double backward).
/// Errors  as cross_entropy; InternalError where a weight's gradient went to its place with another
///         factor than backward brings.
CrossEntropy head_cross_entropy(const at::Tensor& hidden_NH, const at::Tensor& weight_VH,
                                const at::Tensor& targets_N, const HeadOptions& options = {},
                                const HeadAddition& addition = {});

namespace oracle {
CrossEntropy head_cross_entropy(const at::Tensor& hidden_NH, const at::Tensor& weight_VH,
                                const at::Tensor& targets_N, const HeadOptions& options = {},
                                const HeadAddition& addition = {});
}
}  // namespace danlu::ops
