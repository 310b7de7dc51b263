#include "ops/cached_attention.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include "ops/backend.h"
#include "ops/check.h"
#include "ops/pages.h"
#include "ops/pointwise.h"

namespace danlu::ops {
namespace cached_attention_detail {

/// Fewer new tokens than this read pages; more repay a copy of the keys (ops::attention).
constexpr int64_t kFewTokens = 8;

enum class Way { kAsGiven, kPages, kGathered };

Way way_of(const CachedSequence& sequence, bool has_pages) {
  if (sequence.num_new == sequence.length && (sequence.length > 1 || !has_pages))
    return Way::kAsGiven;
  return has_pages && sequence.num_new < kFewTokens ? Way::kPages : Way::kGathered;
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
  const Backend* const table = fused_for(Work::kRows, q_NQD);
  const bool has_pages = table && table->attention_over_pages;
  std::vector<at::Tensor> parts;
  int64_t first = 0;
  // Neighbours that go one way go together.
  for (size_t begin = 0, end = 0; begin < sequences.size(); begin = end) {
    const Way way = way_of(sequences[begin], has_pages);
    int64_t count = 0;
    for (; end < sequences.size() && way_of(sequences[end], has_pages) == way; ++end)
      count += sequences[end].num_new;
    const std::span here(sequences.data() + begin, end - begin);
    const at::Tensor q = q_NQD.narrow(0, first, count);
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
  require(first == q_NQD.size(0), "cached_attention", "sequences have ", first, " new tokens, q ",
          q_NQD.sizes());
  return joined(parts, 0);
}

}  // namespace danlu::ops
