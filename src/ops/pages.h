// ops/pages.h: keys and values of tokens in pages of one pool, and which pages are a sequence's.
#pragma once
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <ostream>
#include <vector>

namespace danlu::ops {

/// Positions that a page holds, of all layers.
inline constexpr int64_t kPageTokens = 32;

/// Pages that hold so many positions of one sequence.
inline int64_t pages_for(int64_t tokens) { return (tokens + kPageTokens - 1) / kPageTokens; }

/// What each layer keeps of a token: a key and a value of every key/value head that is here. Of a
/// latent, one row that all heads make theirs of: heads 1, value_dim 0.
struct PageShape {
  int64_t layers = 0, heads = 0, key_dim = 0, value_dim = 0;
  /// The elements of a layer in a page: keys [heads, kPageTokens, key_dim], then values [heads,
  /// kPageTokens, value_dim].
  int64_t layer_elements() const { return heads * kPageTokens * (key_dim + value_dim); }
  int64_t elements() const { return layers * layer_elements(); }
  bool operator==(const PageShape&) const = default;
};

/// In an error's words.
inline std::ostream& operator<<(std::ostream& out, const PageShape& shape) {
  return out << shape.layers << " layers of " << shape.heads << " heads of " << shape.key_dim
             << " and " << shape.value_dim;
}

/// Pages lie in slabs, contiguous tensors [per_slab, shape.elements()] of one dtype: page p is row
/// p % per_slab of slab p / per_slab.
struct Pages {
  PageShape shape;
  int64_t per_slab = 1;
  std::vector<at::Tensor> slabs;

  int64_t count() const { return per_slab * static_cast<int64_t>(slabs.size()); }
  /// [shape.elements()].
  at::Tensor page(int64_t index) const {
    return slabs[static_cast<size_t>(index / per_slab)].select(0, index % per_slab);
  }
  /// A layer's keys (which = 0) or values (1) of a page: [heads, kPageTokens, D].
  at::Tensor rows(int64_t index, int64_t layer, int64_t which) const {
    const int64_t dim = which == 0 ? shape.key_dim : shape.value_dim;
    const int64_t first = layer * shape.layer_elements() +
                          (which == 0 ? 0 : shape.heads * kPageTokens * shape.key_dim);
    return page(index)
        .narrow(0, first, shape.heads * kPageTokens * dim)
        .view({shape.heads, kPageTokens, dim});
  }
};

/// What a device's kernels make of the sequences of a pass in its first layer, for all of them; by
/// the first of the sequences, how many they are, and what else it was made for.
using TablesOfPass = std::map<std::array<int64_t, 3>, at::Tensor>;

/// Sequences whose last `num_new` tokens are at hand; their pages have room for `lengths`. They do
/// not change.
struct CachedSequences {
  /// int32 [B, P], contiguous, on the host: each sequence's pages in order, then anything.
  at::Tensor host_tables_BP;
  at::Tensor tables_BP;  ///< the same where the pages are, for kernels; on a host the same tensor
  std::vector<int64_t> num_new, lengths;  ///< lengths: the new ones included
  std::shared_ptr<TablesOfPass> made = std::make_shared<TablesOfPass>();  ///< parts share it

  int64_t count() const { return static_cast<int64_t>(lengths.size()); }
  const int32_t* host_table(int64_t sequence) const {
    return host_tables_BP.data_ptr<int32_t>() + sequence * host_tables_BP.size(1);
  }
  /// Sequences [begin, end).
  CachedSequences part(int64_t begin, int64_t end) const {
    if (begin == 0 && end == count()) return *this;
    return {host_tables_BP.narrow(0, begin, end - begin),
            tables_BP.narrow(0, begin, end - begin),
            {num_new.begin() + begin, num_new.begin() + end},
            {lengths.begin() + begin, lengths.begin() + end},
            made};
  }
  /// make() of the first call for these sequences and `what`.
  template <typename Make>
  const at::Tensor& table_of_pass(int64_t what, const Make& make) const {
    at::Tensor& own = (*made)[{host_tables_BP.storage_offset(), count(), what}];
    if (!own.defined()) own = make();
    return own;
  }
};
/// Sequences with these tables, one for each, of pages on `device`.
CachedSequences cached_sequences(const std::vector<std::vector<int32_t>>& tables,
                                 std::vector<int64_t> num_new, std::vector<int64_t> lengths,
                                 const at::Device& device);

/// Calls body(page, first place in it, which of [from, to) that is, number) for each page's part of
/// the tokens [from, to) of a sequence.
template <typename Body>
void each_page_part(const int32_t* table, int64_t from, int64_t to, const Body& body) {
  for (int64_t at = from; at < to;) {
    const int64_t place = at % kPageTokens, count = std::min(kPageTokens - place, to - at);
    body(table[at / kPageTokens], place, at - from, count);
    at += count;
  }
}

}  // namespace danlu::ops
