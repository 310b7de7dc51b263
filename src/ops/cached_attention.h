// ops/cached_attention.h: attention of new tokens over keys and values that are kept in pages.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

#include "ops/attention.h"
#include "ops/pages.h"

namespace danlu::ops {

/// Writes the keys and values of the new tokens of all sequences, one after the other in k_NKD [N,
/// K, D] and v_NKD [N, K, Dv], to their places. Without gradient. Errors: ModelError for shapes and
/// dtypes that are not the pages', for tables that name no page or too few, for a layer that pages
/// do not hold.
void store_in_pages(const at::Tensor& k_NKD, const at::Tensor& v_NKD, const Pages& pages,
                    const CachedSequences& sequences, int64_t layer);

/// The keys (which = 0) or values (1) of a layer of a sequence as one tensor [length, K, D].
/// Errors: as store_in_pages.
at::Tensor gathered(const Pages& pages, const CachedSequences& sequences, int64_t sequence,
                    int64_t layer, int64_t which);

/// attention() of the new tokens over all tokens of their sequences, causal. Pages are read where
/// they are if few tokens of a sequence are new; new tokens without anything before them are
/// attended to as they are; anything else is gathered. q_NQD [N, Q, D], k_NKD and v_NKD as
/// store_in_pages was given them. Dtypes, result and errors as attention() and store_in_pages;
/// without gradient.
at::Tensor cached_attention(const at::Tensor& q_NQD, const at::Tensor& k_NKD,
                            const at::Tensor& v_NKD, const Pages& pages,
                            const CachedSequences& sequences, int64_t layer,
                            const AttentionOptions& options);

/// New tokens of latent attention (DeepSeek-V2, arXiv:2405.04434 §2.1), of which one row each is
/// kept [R], in pages of one head with key_dim R and value_dim 0. A row becomes the key and the
/// value of every head (`expand`), or a query becomes one that meets rows as they are (`absorb`),
/// whose weighted sum then becomes what the head gives (`values`). Both say the same.
struct LatentQueries {
  at::Tensor q_NQD;
  at::Tensor rows_NR;
  struct Expanded {
    at::Tensor k_MQD, v_MQD;  ///< v [M, Q, Dv]
  };
  std::function<Expanded(const at::Tensor& rows_MR)> expand;
  std::function<at::Tensor(const at::Tensor& q_NQD)> absorb;     ///< [N, Q, R]
  std::function<at::Tensor(const at::Tensor& seen_NQR)> values;  ///< [N, Q, Dv]
};
/// Writes the rows to their places and gives attention of the queries over all tokens of their
/// sequences, causal: expanded where nothing comes before the new tokens or where they are many,
/// else absorbed. Result [N, Q, Dv]; dtypes and errors as cached_attention(); without gradient.
at::Tensor cached_latent_attention(const LatentQueries& queries, const Pages& pages,
                                   const CachedSequences& sequences, int64_t layer,
                                   const AttentionOptions& options);

}  // namespace danlu::ops
