#include "ops/pages.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "device/sent.h"
#include "ops/aten/table.h"

namespace danlu::ops::aten {
namespace {

/// A layer's keys (which = 0) or values (1) of all pages of a slab: [per_slab, heads, kPageTokens,
/// D].
at::Tensor layer_of_slab(const Pages& pages, size_t slab, int64_t layer, int64_t which) {
  const PageShape& shape = pages.shape;
  const int64_t dim = which == 0 ? shape.key_dim : shape.value_dim;
  const int64_t first =
      layer * shape.layer_elements() + which * shape.heads * kPageTokens * shape.key_dim;
  return pages.slabs[slab]
      .narrow(1, first, shape.heads * kPageTokens * dim)
      .view({pages.per_slab, shape.heads, kPageTokens, dim});
}

at::Tensor numbers_for(const std::vector<int64_t>& numbers, const at::Tensor& like) {
  return device::sent(at::tensor(numbers, at::kLong), like.device());
}

/// Which rows of something are in each slab, and where there.
struct InSlab {
  std::vector<int64_t> rows, pages, places;
};

/// The pages of sequences, as many for each as the longest has: what is after a sequence's own is
/// its first page.
struct PageTables {
  PageTables(const Pages& pages, const CachedSequences& sequences) : in_slab(pages.slabs.size()) {
    int64_t longest = 1;
    for (const int64_t length : sequences.lengths) longest = std::max(longest, length);
    per_sequence = (longest + kPageTokens - 1) / kPageTokens;
    for (int64_t s = 0; s < sequences.count(); ++s) {
      const int64_t length = sequences.lengths[static_cast<size_t>(s)];
      const int64_t own = std::max<int64_t>(1, (length + kPageTokens - 1) / kPageTokens);
      for (int64_t i = 0; i < per_sequence; ++i) {
        const int64_t page = sequences.host_table(s)[i < own ? i : 0];
        InSlab& slab = in_slab[static_cast<size_t>(page / pages.per_slab)];
        slab.rows.push_back(s * per_sequence + i);
        slab.pages.push_back(page % pages.per_slab);
      }
    }
    count = sequences.count() * per_sequence;
  }
  std::vector<InSlab> in_slab;
  int64_t per_sequence = 0, count = 0;
};

/// Keys or values of all sequences, f32 [B K, P kPageTokens, D]: one copy for each slab.
at::Tensor keys_of(const Pages& pages, const PageTables& tables, int64_t sequences, int64_t layer,
                   int64_t which) {
  const int64_t heads = pages.shape.heads;
  at::Tensor all;
  for (size_t s = 0; s < pages.slabs.size(); ++s) {
    const InSlab& here = tables.in_slab[s];
    if (here.rows.empty()) continue;
    const at::Tensor slab = layer_of_slab(pages, s, layer, which);
    const at::Tensor part = slab.index_select(0, numbers_for(here.pages, slab));
    if (static_cast<int64_t>(here.rows.size()) == tables.count) {
      all = part;
      break;
    }
    if (!all.defined())
      all = at::empty({tables.count, heads, kPageTokens, slab.size(3)}, slab.options());
    all.index_copy_(0, numbers_for(here.rows, slab), part);
  }
  return all.view({sequences, tables.per_sequence, heads, kPageTokens, -1})
      .permute({0, 2, 1, 3, 4})
      .to(at::kFloat)
      .reshape({sequences * heads, tables.per_sequence * kPageTokens, -1});
}

/// Where new tokens stand: the row of each among `most` a sequence, and its place in its sequence.
struct NewTokens {
  explicit NewTokens(const CachedSequences& sequences) {
    for (const int64_t num_new : sequences.num_new) most = std::max(most, num_new);
    // Rows without a token see the first key, so that their weights are numbers.
    places.assign(static_cast<size_t>(sequences.count() * most), 0);
    for (int64_t s = 0; s < sequences.count(); ++s) {
      const int64_t num_new = sequences.num_new[static_cast<size_t>(s)];
      for (int64_t i = 0; i < num_new; ++i) {
        rows.push_back(s * most + i);
        places[static_cast<size_t>(rows.back())] =
            sequences.lengths[static_cast<size_t>(s)] - num_new + i;
      }
    }
  }
  std::vector<int64_t> rows, places;
  int64_t most = 1;
};

/// [B, 1, 1, T, M] of queries' places [B, T] and the places of keys: key - query.
at::Tensor distances_of(const NewTokens& tokens, int64_t sequences, int64_t keys,
                        const at::Tensor& like) {
  const at::Tensor place = numbers_for(tokens.places, like).view({sequences, 1, 1, tokens.most, 1});
  return at::arange(keys, like.options().dtype(at::kLong)) - place;
}

}  // namespace

at::Tensor attention_over_pages(const at::Tensor& q_NQD, const Pages& pages,
                                const CachedSequences& sequences, int64_t layer,
                                const AttentionOptions& options) {
  const int64_t count = sequences.count(), kv_heads = pages.shape.heads, heads = q_NQD.size(1),
                dim = q_NQD.size(2), group = heads / kv_heads;
  const PageTables tables(pages, sequences);
  const NewTokens tokens(sequences);
  const int64_t most = tokens.most;
  const at::Tensor k = keys_of(pages, tables, count, layer, 0);
  const at::Tensor v = pages.shape.value_dim == 0 ? k : keys_of(pages, tables, count, layer, 1);
  const int64_t keys = k.size(1);
  // What nobody has written yet may be no number, which a weight of 0 does not hide.
  const at::Tensor unwritten =
      at::arange(keys, q_NQD.options().dtype(at::kLong)).view({1, 1, keys, 1}) >=
      numbers_for(sequences.lengths, q_NQD).view({count, 1, 1, 1});
  v.view({count, kv_heads, keys, v.size(2)}).masked_fill_(unwritten, 0);
  const at::Tensor rows_n = numbers_for(tokens.rows, q_NQD);
  at::Tensor padded = at::zeros({count * most, heads, dim}, q_NQD.options().dtype(at::kFloat));
  padded.index_copy_(0, rows_n, q_NQD.to(at::kFloat) * options.scale);
  const at::Tensor q = padded.view({count, most, kv_heads, group, dim})
                           .permute({0, 2, 3, 1, 4})
                           .reshape({count * kv_heads, group * most, dim});
  at::Tensor scores = at::bmm(q, k.transpose(1, 2)).view({count, kv_heads, group, most, keys});
  const at::Tensor distance = distances_of(tokens, count, keys, q_NQD);
  if (options.alibi_slopes_Q.defined()) {
    scores.add_(options.alibi_slopes_Q.to(scores.options()).view({1, kv_heads, group, 1, 1}) *
                distance);
  }
  at::Tensor hidden = distance > 0;
  if (options.window > 0) hidden = hidden.logical_or_(distance <= -options.window);
  scores.masked_fill_(hidden, -std::numeric_limits<double>::infinity());
  const at::Tensor weights = at::softmax(scores, -1).view({count * kv_heads, group * most, keys});
  return at::bmm(weights, v)
      .view({count, kv_heads, group, most, -1})
      .permute({0, 3, 1, 2, 4})
      .reshape({count * most, heads, -1})
      .index_select(0, rows_n)
      .to(q_NQD.scalar_type());
}

void store_in_pages(const at::Tensor& k_NKD, const at::Tensor& v_NKD, const Pages& pages,
                    const CachedSequences& sequences, int64_t layer) {
  std::vector<InSlab> in_slab(pages.slabs.size());
  int64_t row = 0;
  for (int64_t s = 0; s < sequences.count(); ++s) {
    const auto index = static_cast<size_t>(s);
    const int64_t length = sequences.lengths[index];
    for (int64_t place = length - sequences.num_new[index]; place < length; ++place, ++row) {
      const int64_t page = sequences.host_table(s)[place / kPageTokens];
      InSlab& slab = in_slab[static_cast<size_t>(page / pages.per_slab)];
      slab.rows.push_back(row);
      slab.pages.push_back(page % pages.per_slab);
      slab.places.push_back(place % kPageTokens);
    }
  }
  for (size_t s = 0; s < in_slab.size(); ++s) {
    const InSlab& here = in_slab[s];
    if (here.rows.empty()) continue;
    const at::Tensor page = numbers_for(here.pages, k_NKD), place = numbers_for(here.places, k_NKD);
    const bool all = static_cast<int64_t>(here.rows.size()) == k_NKD.size(0);
    const at::Tensor rows = all ? at::Tensor() : numbers_for(here.rows, k_NKD);
    for (const auto& [x_NKD, which] : {std::pair(k_NKD, 0), std::pair(v_NKD, 1)}) {
      if (x_NKD.size(2) == 0) continue;  // the values of a latent
      layer_of_slab(pages, s, layer, which)
          .transpose(1, 2)
          .index_put_({page, place}, all ? x_NKD : x_NKD.index_select(0, rows));
    }
  }
}

}  // namespace danlu::ops::aten
