// Attention of new tokens over keys and values that lie in pages.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <vector>

#include "npu/arithmetic.h"
#include "npu/operators.h"
#include "npu/table.h"

namespace danlu::npu {
namespace {

/// The pages of all sequences, one after the other, each sequence's in order.
std::vector<int64_t> pages_in_order(const ops::CachedSequences& sequences) {
  std::vector<int64_t> all;
  for (int64_t s = 0; s < sequences.count(); ++s) {
    const int32_t* const table = sequences.host_table(s);
    const int64_t length = sequences.lengths[static_cast<size_t>(s)];
    for (int64_t i = 0; i * ops::kPageTokens < length; ++i) all.push_back(table[i]);
  }
  return all;
}

bool are_in_one_slab(const std::vector<int64_t>& wanted, const ops::Pages& pages) {
  for (const int64_t page : wanted) {
    if (page / pages.per_slab != wanted.front() / pages.per_slab) return false;
  }
  return true;
}

/// A layer's keys (which = 0) or values (1) of the pages: [pages, heads, kPageTokens, D].
at::Tensor gathered_pages(const std::vector<int64_t>& wanted, const ops::Pages& pages,
                          int64_t layer, int64_t which) {
  const ops::PageShape& shape = pages.shape;
  const int64_t dim = which == 0 ? shape.key_dim : shape.value_dim,
                count = static_cast<int64_t>(wanted.size()),
                first = layer * shape.layer_elements() +
                        (which == 0 ? 0 : shape.heads * ops::kPageTokens * shape.key_dim),
                width = shape.heads * ops::kPageTokens * dim;
  const at::Tensor& slab = pages.slabs[static_cast<size_t>(wanted.front() / pages.per_slab)];
  const at::Tensor found = fresh(slab, {count, width}, slab.scalar_type());
  if (are_in_one_slab(wanted, pages)) {
    const at::Tensor rows = at::empty({count}, at::kLong);
    for (int64_t i = 0; i < count; ++i)
      rows.data_ptr<int64_t>()[i] = wanted[static_cast<size_t>(i)] % pages.per_slab;
    aclnn::index_select(View(slab.narrow(1, first, width)), int64_t{0},
                        View(rows.to(slab.device())), View(found));
  } else {
    for (int64_t i = 0; i < count; ++i)
      found[i].copy_(pages.page(wanted[static_cast<size_t>(i)]).narrow(0, first, width));
  }
  return found.view({count, shape.heads, ops::kPageTokens, dim});
}

/// [pages * kPageTokens, heads, D], as attention takes them.
at::Tensor tokens_of(const at::Tensor& found) {
  return found.transpose(1, 2).contiguous().flatten(0, 1);
}

}  // namespace

at::Tensor attention_over_pages(const at::Tensor& q_NQD, const ops::Pages& pages,
                                const ops::CachedSequences& sequences, int64_t layer,
                                const ops::AttentionOptions& options) {
  const std::vector<int64_t> wanted = pages_in_order(sequences);
  const at::Tensor k_MKD = tokens_of(gathered_pages(wanted, pages, layer, 0));
  const at::Tensor v_MKD =
      pages.shape.value_dim > 0 ? tokens_of(gathered_pages(wanted, pages, layer, 1)) : k_MKD;
  ops::Spans spans;
  int64_t q = 0, k = 0;
  for (size_t s = 0; s < sequences.lengths.size(); ++s) {
    const int64_t num_new = sequences.num_new[s], length = sequences.lengths[s];
    if (num_new > 0) spans.push_back({q, num_new, k, length, length - num_new});
    q += num_new;
    k += ops::pages_for(length) * ops::kPageTokens;
  }
  return attention(q_NQD, k_MKD, v_MKD, spans, options, q_NQD.scalar_type()).out_NQD;
}

}  // namespace danlu::npu
