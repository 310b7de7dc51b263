// ops/token_logprobs.h: log-probabilities of chosen tokens, with gradient, without all logits.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>

#include "ops/cross_entropy.h"

namespace danlu::ops {

/// Results for M pairs of a row and an id; f32 (f64 for f64), where numbers are worked with
/// (device_of_numbers in ops/pointwise.h).
struct TokenLogprobs {
  at::Tensor logprobs_M;  ///< logits - norms, with grad
  // Without grad.
  at::Tensor logits_M, norms_M;  ///< norm: log of the sum of exponentials over the vocabulary
  /// bool: the id has the largest logit. Among equal logits only the first has; where the device
  /// computes through its table alone, all of them have.
  at::Tensor is_largest_M;
  /// The entropy of the whole distribution at the pair's row, in nats; undefined unless asked for.
  at::Tensor entropies_M = {};
};

/// What the logits go through.
struct LogprobOptions {
  double temperature = 1;  ///< they are divided by it; > 0
  bool entropy = false;    ///< TokenLogprobs::entropies_M is asked for
  /// For how many rows they exist at one time, in the type of the products, of which a few at a
  /// time are widened; 0: 16 M of them, or 256 rows.
  int64_t chunk_rows = 0;
  /// > 0: entropies are of the K likeliest ids as a distribution of their own. REQUIRES: the device
  /// computes by ATen.
  int64_t top_of_entropy = 0;
};

/// Whether logits of a model on this device are on the host wherever they are used: where ATen
/// computes, and no entry of the table finds the likeliest of them.
bool has_logits_on_host(const c10::Device& device);

/// Without gradient, for logits [C, V] that `logits_of` gives on the host, in any floating type,
/// for C rows of hidden_NH. vocab: its size. rows_M, ids_M as below.
TokenLogprobs token_logprobs(const at::Tensor& hidden_NH, const at::Tensor& rows_M,
                             const at::Tensor& ids_M, const LogprobOptions& how, int64_t vocab,
                             const std::function<at::Tensor(const at::Tensor&)>& logits_of);

/// With gradient, for logits = hidden weight^T + addition. They are made a chunk of rows at a time,
/// in forward and again in backward, so nothing of their size is kept.
/// Shapes  hidden_NH [N, H]; weight_VH [V, H], or this rank's rows of it (options.share); rows_M,
///         ids_M int64 [M] on the host: rows ascend and may repeat.
/// Dtypes  as head_cross_entropy. Grad  through all four factors.
///         Options of the loss alone (z_loss_weight, grad_scale) are not used. With a share, the
///         gradients of `hidden` and of an addition's low_NR are this rank's part of a sum.
/// Errors  ModelError for rows or ids that do not exist.
TokenLogprobs head_token_logprobs(const at::Tensor& hidden_NH, const at::Tensor& weight_VH,
                                  const at::Tensor& rows_M, const at::Tensor& ids_M,
                                  const HeadOptions& options = {},
                                  const HeadAddition& addition = {},
                                  const LogprobOptions& how = {});

}  // namespace danlu::ops
