#include "ops/cached_attention.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include "ops/backend.h"
#include "ops/check.h"
#include "ops/pages.h"
#include "ops/pointwise.h"

namespace danlu::ops {
namespace cached_attention_detail {

void check_pages(const CachedSequence& sequence, int64_t layer) {
  const auto& [pages, num_new, length] = sequence;
  require(num_new >= 0 && num_new <= length && !pages.empty() &&
              length <= static_cast<int64_t>(pages.size()) * kPageTokens,
          "cached_attention", length, " tokens, ", num_new, " of them new, do not fit ",
          pages.size(), " pages");
  const at::Tensor& first = pages.front();
  require(first.dim() == 5 && layer >= 0 && layer < first.size(0) && first.size(1) == 2 &&
              first.size(3) == kPageTokens,
          "cached_attention", "a page ", first.sizes(), " must be [L, 2, K, ", kPageTokens,
          ", D], and hold layer ", layer);
  for (const at::Tensor& page : pages) {
    require(page.sizes() == first.sizes() && page.scalar_type() == first.scalar_type() &&
                page.is_contiguous(),
            "cached_attention", "pages of a sequence must be alike and contiguous: ", page.sizes(),
            " beside ", first.sizes());
  }
}

/// The keys and values of the new tokens belong into the pages.
void check_new(const at::Tensor& k_NKD, const at::Tensor& v_NKD,
               std::span<const CachedSequence> sequences, int64_t layer) {
  require(k_NKD.dim() == 3 && k_NKD.sizes() == v_NKD.sizes() &&
              k_NKD.scalar_type() == v_NKD.scalar_type(),
          "cached_attention", "k ", k_NKD.sizes(), ' ', k_NKD.scalar_type(), ", v ", v_NKD.sizes(),
          ' ', v_NKD.scalar_type(), " must both be [N, K, D] of one dtype");
  int64_t num_new = 0;
  for (const CachedSequence& sequence : sequences) {
    check_pages(sequence, layer);
    const at::Tensor& page = sequence.pages.front();
    require(page.size(2) == k_NKD.size(1) && page.size(4) == k_NKD.size(2) &&
                page.scalar_type() == k_NKD.scalar_type(),
            "cached_attention", "k ", k_NKD.sizes(), ' ', k_NKD.scalar_type(),
            " does not fit pages ", page.sizes(), ' ', page.scalar_type());
    num_new += sequence.num_new;
  }
  require(num_new == k_NKD.size(0), "cached_attention", "sequences have ", num_new,
          " new tokens, k ", k_NKD.sizes());
}

void check_queries(const at::Tensor& q_NQD, const at::Tensor& k_NKD,
                   const AttentionOptions& options) {
  require(q_NQD.dim() == 3 && q_NQD.size(0) == k_NKD.size(0) && q_NQD.size(2) == k_NKD.size(2) &&
              k_NKD.size(1) > 0 && q_NQD.size(1) % k_NKD.size(1) == 0 &&
              q_NQD.scalar_type() == k_NKD.scalar_type(),
          "cached_attention", "q ", q_NQD.sizes(), ' ', q_NQD.scalar_type(), " does not fit k ",
          k_NKD.sizes(), ' ', k_NKD.scalar_type(),
          ": [N, Q, D] and [N, K, D] with K dividing Q, of one dtype");
  require(!options.alibi_slopes_Q.defined() || options.alibi_slopes_Q.numel() == q_NQD.size(1),
          "cached_attention", "there must be one ALiBi slope for each of the ", q_NQD.size(1),
          " heads");
}

enum class Way { kAsGiven, kPages, kGathered };

/// `table` reads pages, or is null. More new tokens than a few repay a copy of the keys.
Way way_of(const CachedSequence& sequence, const Backend* table) {
  if (sequence.num_new == sequence.length && (sequence.length > 1 || !table)) return Way::kAsGiven;
  return table && sequence.num_new < table->fewest_queries ? Way::kPages : Way::kGathered;
}

Segments segments_of(std::span<const CachedSequence> sequences) {
  Segments segments{{0}, {0}};
  for (const CachedSequence& sequence : sequences) {
    segments.q_starts.push_back(segments.q_starts.back() + sequence.num_new);
    segments.k_starts.push_back(segments.k_starts.back() + sequence.length);
  }
  return segments;
}

at::Tensor all_gathered(std::span<const CachedSequence> sequences, int64_t layer, int64_t which) {
  std::vector<at::Tensor> parts;
  for (const CachedSequence& sequence : sequences)
    parts.push_back(gathered(sequence, layer, which));
  return joined(parts, 0);
}

}  // namespace cached_attention_detail

void store_in_pages(const at::Tensor& k_NKD, const at::Tensor& v_NKD,
                    const std::vector<CachedSequence>& sequences, int64_t layer) {
  cached_attention_detail::check_new(k_NKD, v_NKD, sequences, layer);
  if (const auto store = backend_of(k_NKD.device().type()).store_in_pages)
    return store(k_NKD, v_NKD, sequences, layer);
  int64_t first = 0;
  for (const CachedSequence& sequence : sequences) {
    for (const auto& [x_NKD, which] : {std::pair(k_NKD, 0), std::pair(v_NKD, 1)}) {
      each_page_part(sequence, sequence.length - sequence.num_new, sequence.length,
                     [&](const at::Tensor& page, int64_t place, int64_t from, int64_t count) {
                       page[layer][which]
                           .narrow(1, place, count)
                           .copy_(x_NKD.narrow(0, first + from, count).transpose(0, 1));
                     });
    }
    first += sequence.num_new;
  }
}

at::Tensor gathered(const CachedSequence& sequence, int64_t layer, int64_t which) {
  cached_attention_detail::check_pages(sequence, layer);
  const at::Tensor& some = sequence.pages.front();
  at::Tensor all = at::empty({sequence.length, some.size(2), some.size(4)}, some.options());
  each_page_part(
      sequence, 0, sequence.length,
      [&](const at::Tensor& page, int64_t place, int64_t at, int64_t count) {
        all.narrow(0, at, count).copy_(page[layer][which].narrow(1, place, count).transpose(0, 1));
      });
  return all;
}

at::Tensor cached_attention(const at::Tensor& q_NQD, const at::Tensor& k_NKD,
                            const at::Tensor& v_NKD, const std::vector<CachedSequence>& sequences,
                            int64_t layer, const AttentionOptions& options) {
  using namespace cached_attention_detail;
  check_new(k_NKD, v_NKD, sequences, layer);
  check_queries(q_NQD, k_NKD, options);
  const Backend* table = fused_for(Work::kRows, q_NQD);
  if (table && !table->attention_over_pages) table = nullptr;
  std::vector<at::Tensor> parts;
  int64_t first = 0;
  // Neighbours that go one way go together.
  for (size_t begin = 0, end = 0; begin < sequences.size(); begin = end) {
    const Way way = way_of(sequences[begin], table);
    int64_t count = 0;
    for (; end < sequences.size() && way_of(sequences[end], table) == way; ++end)
      count += sequences[end].num_new;
    const std::span here(sequences.data() + begin, end - begin);
    const at::Tensor q = count == q_NQD.size(0) ? q_NQD : q_NQD.narrow(0, first, count);
    if (way == Way::kPages) {
      parts.push_back(table->attention_over_pages(q, k_NKD.size(1), here, layer, options));
    } else if (way == Way::kAsGiven) {
      parts.push_back(attention(q, k_NKD.narrow(0, first, count), v_NKD.narrow(0, first, count),
                                segments_of(here), options));
    } else {
      parts.push_back(attention(q, all_gathered(here, layer, 0), all_gathered(here, layer, 1),
                                segments_of(here), options));
    }
    first += count;
  }
  return joined(parts, 0);
}

}  // namespace danlu::ops
