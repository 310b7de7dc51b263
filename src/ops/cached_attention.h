// ops/cached_attention.h: attention of new tokens over keys and values that are kept in pages.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "ops/attention.h"

namespace danlu::ops {

/// Positions that a page holds, of all layers: [L, 2, K, kPageTokens, D], keys then values.
inline constexpr int64_t kPageTokens = 32;

/// A sequence whose last `num_new` tokens are at hand; its pages have room for `length` tokens.
struct CachedSequence {
  std::span<const at::Tensor> pages;
  int64_t num_new = 0, length = 0;  ///< length: the new ones included
};

/// Writes the keys and values of the new tokens of all sequences, one after the other in k_NKD and
/// v_NKD [N, K, D], to their places. Without gradient. Errors: ModelError for shapes and dtypes
/// that are not the pages', for too few pages, for a layer that they do not hold.
void store_in_pages(const at::Tensor& k_NKD, const at::Tensor& v_NKD,
                    const std::vector<CachedSequence>& sequences, int64_t layer);

/// The keys (which = 0) or values (1) of a layer of a sequence as one tensor [length, K, D].
at::Tensor gathered(const CachedSequence& sequence, int64_t layer, int64_t which);

/// attention() of the new tokens over all tokens of their sequences. Pages are read where they are
/// if few tokens of a sequence are new; new tokens without anything before them are attended to as
/// they are; anything else is gathered. q_NQD [N, Q, D], k_NKD and v_NKD as store_in_pages was
/// given them. Dtypes, result and errors as attention() and store_in_pages; without gradient.
at::Tensor cached_attention(const at::Tensor& q_NQD, const at::Tensor& k_NKD,
                            const at::Tensor& v_NKD, const std::vector<CachedSequence>& sequences,
                            int64_t layer, const AttentionOptions& options);

}  // namespace danlu::ops
