// Attention of new tokens over keys and values that lie in pages: where they lie, or of copies.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <vector>

#include "base/log.h"
#include "device/sent.h"
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

at::Tensor attention_over_copies(const at::Tensor& q_NQD, const ops::Pages& pages,
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

/// Blocks of the operator in a page: each layer's keys, and its values where it has any.
int64_t blocks_of_page(const ops::PageShape& shape) {
  return shape.layers * (shape.value_dim > 0 ? 2 : 1);
}

/// A single query sees all keys that there are: a window must hide none.
bool sees_all(const ops::CachedSequences& sequences, const ops::AttentionOptions& options) {
  if (options.softcap > 0 || options.alibi_slopes_Q.defined()) return false;
  return options.window <= 0 ||
         std::all_of(sequences.lengths.begin(), sequences.lengths.end(),
                     [&](int64_t length) { return length <= options.window; });
}

/// Whether CANN has refused blocks of pages: it is not asked again.
std::atomic<bool>& refused_blocks() {
  static std::atomic<bool> refused = false;
  return refused;
}

/// What the operator takes, by CANN's pages: halves, one tensor of equal blocks, heads of up to 512
/// in steps of 16, and few of them. Keys and values of one width make equal blocks of a slab.
bool are_blocks(const at::Tensor& q_NQD, const ops::Pages& pages) {
  constexpr int64_t kStep = 16, kWidest = 512, kMostHeads = 256, kMostOfAGroup = 64;
  static_assert(ops::kPageTokens % kStep == 0 && ops::kPageTokens <= kWidest);
  const ops::PageShape& shape = pages.shape;
  const int64_t heads = q_NQD.size(1);
  const bool is_half = q_NQD.scalar_type() == at::kHalf || q_NQD.scalar_type() == at::kBFloat16;
  return !refused_blocks() && is_half && pages.slabs.size() == 1 &&
         (shape.value_dim == 0 || shape.value_dim == shape.key_dim) && shape.key_dim % kStep == 0 &&
         shape.key_dim <= kWidest && heads <= kMostHeads && heads % shape.heads == 0 &&
         heads / shape.heads <= kMostOfAGroup &&
         pages.per_slab * blocks_of_page(shape) <= std::numeric_limits<int32_t>::max() &&
         aclnn::attention_of_blocks.is_there();
}

/// A query for each new token, as a sequence that ends with it. int32 [N, P]: the first block of
/// each page of theirs; what follows a sequence's pages is not read.
at::Tensor blocks_of_tokens(const ops::CachedSequences& sequences, const ops::Pages& pages) {
  int64_t tokens = 0, most = 1;
  for (int64_t s = 0; s < sequences.count(); ++s) {
    tokens += sequences.num_new[static_cast<size_t>(s)];
    most = std::max(most, ops::pages_for(sequences.lengths[static_cast<size_t>(s)]));
  }
  const at::Tensor blocks_NP = at::zeros({tokens, most}, at::kInt);
  int32_t* row = blocks_NP.data_ptr<int32_t>();
  const auto step = static_cast<int32_t>(blocks_of_page(pages.shape));
  for (int64_t s = 0; s < sequences.count(); ++s) {
    const int64_t count = ops::pages_for(sequences.lengths[static_cast<size_t>(s)]);
    for (int64_t i = 0; i < sequences.num_new[static_cast<size_t>(s)]; ++i, row += most)
      std::transform(sequences.host_table(s), sequences.host_table(s) + count, row,
                     [&](int32_t page) { return page * step; });
  }
  return device::sent(blocks_NP, pages.slabs.front().device());
}

/// Keys that each new token sees.
std::vector<int64_t> keys_of_tokens(const ops::CachedSequences& sequences) {
  std::vector<int64_t> keys;
  for (size_t s = 0; s < sequences.lengths.size(); ++s) {
    const int64_t first = sequences.lengths[s] - sequences.num_new[s];
    for (int64_t i = 0; i < sequences.num_new[s]; ++i) keys.push_back(first + i + 1);
  }
  return keys;
}

/// All blocks of a slab from a layer's keys (which = 0) or values (1) in its first page on:
/// [blocks, heads, kPageTokens, D].
ViewList blocks_from(const ops::Pages& pages, int64_t layer, int64_t which) {
  const ops::PageShape& shape = pages.shape;
  const int64_t dim = shape.key_dim, block = shape.heads * ops::kPageTokens * dim,
                first = shape.value_dim > 0 ? 2 * layer + which : layer;
  const at::Tensor& slab = pages.slabs.front();
  return ViewList(
      slab, slab.scalar_type(),
      {pages.per_slab * blocks_of_page(shape) - first, shape.heads, ops::kPageTokens, dim},
      {block, ops::kPageTokens * dim, dim, 1}, first * block);
}

/// Nothing where CANN refuses it.
at::Tensor attention_where_they_lie(const at::Tensor& q_NQD, const ops::Pages& pages,
                                    const ops::CachedSequences& sequences, int64_t layer,
                                    double scale) {
  constexpr int64_t kUnlimited = std::numeric_limits<int32_t>::max();
  const at::Tensor& blocks_NP = sequences.table_of_pass(
      blocks_of_page(pages.shape), [&] { return blocks_of_tokens(sequences, pages); });
  const at::Tensor q = q_NQD.contiguous(), out_NQD = fresh(q), no_sums = fresh(q, {1}, at::kFloat);
  char layout[] = "BNSD";
  const bool is_done = aclnn::attention_of_blocks.runs(
      View(q.unsqueeze(2)), blocks_from(pages, layer, 0), blocks_from(pages, layer, 1), nullptr,
      nullptr, nullptr, Numbers(keys_of_tokens(sequences)), nullptr, nullptr, nullptr, nullptr,
      nullptr, nullptr, nullptr, View(blocks_NP), nullptr, nullptr, nullptr, nullptr, nullptr,
      nullptr, nullptr, nullptr, nullptr, q.size(1), scale, kUnlimited, kUnlimited, layout,
      pages.shape.heads, int64_t{0}, int64_t{0}, ops::kPageTokens, int64_t{0}, false, int64_t{0},
      int64_t{0}, View(out_NQD.unsqueeze(2)), View(no_sums));
  return is_done ? out_NQD : at::Tensor();
}

}  // namespace

at::Tensor attention_over_pages(const at::Tensor& q_NQD, const ops::Pages& pages,
                                const ops::CachedSequences& sequences, int64_t layer,
                                const ops::AttentionOptions& options) {
  if (q_NQD.size(0) > 0 && sees_all(sequences, options) && are_blocks(q_NQD, pages)) {
    const at::Tensor out_NQD =
        attention_where_they_lie(q_NQD, pages, sequences, layer, options.scale);
    if (out_NQD.defined()) return out_NQD;
    if (!refused_blocks().exchange(true)) {
      log::notice(
          "[npu] aclnn{}: CANN does not take pages of {} tokens of {} heads of {}: keys and values "
          "are copied for each token from now on",
          aclnn::attention_of_blocks.name(), ops::kPageTokens, pages.shape.heads,
          pages.shape.key_dim);
    }
  }
  return attention_over_copies(q_NQD, pages, sequences, layer, options);
}

}  // namespace danlu::npu
