// ops/token_logprobs.h: log-probabilities of chosen tokens, with gradient, without all logits.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>

#include "ops/cross_entropy.h"

namespace danlu::ops {

/// Of M pairs of a row and an id. f32 (f64 of f64).
struct TokenLogprobs {
  at::Tensor logprobs_M;  ///< logits - norms, with grad
  // Without.
  at::Tensor logits_M, norms_M;  ///< norm: log of the sum of exponentials over the vocabulary
  at::Tensor is_largest_M;       ///< bool: no logit is larger; of equal ones the first, or, of a
                                 ///< head that ranks share, any
};

/// Of logits that `logits_of` gives on the host [C, V] for C rows of hidden_NH, `chunk_rows` at a
/// time (0: as many as about 64 MB hold of a vocabulary of `vocab`). rows_M, ids_M as below.
/// Without gradient.
TokenLogprobs token_logprobs(const at::Tensor& hidden_NH, const at::Tensor& rows_M,
                             const at::Tensor& ids_M, int64_t chunk_rows, int64_t vocab,
                             const std::function<at::Tensor(const at::Tensor&)>& logits_of);

/// Of logits = hidden weight^T + addition, which are made a chunk of rows at a time, in forward and
/// again in backward: nothing of their size is kept.
/// Shapes  hidden_NH [N, H]; weight_VH [V, H], or this rank's rows of it (options.share); rows_M,
///         ids_M int64 [M] on the host: rows ascend, one may be there several times.
/// Dtypes  as head_cross_entropy. Grad  through all four factors.
/// Options share, chunk_tokens and main_grad alone. With a share, gradients of `hidden` and of an
///         addition's low_NR are this rank's part of the sum.
/// Errors  ModelError for rows or ids that are not there.
TokenLogprobs head_token_logprobs(const at::Tensor& hidden_NH, const at::Tensor& weight_VH,
                                  const at::Tensor& rows_M, const at::Tensor& ids_M,
                                  const HeadOptions& options = {},
                                  const HeadAddition& addition = {});

}  // namespace danlu::ops
