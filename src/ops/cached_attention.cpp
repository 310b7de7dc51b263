#include "ops/cached_attention.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include "device/sent.h"
#include "ops/backend.h"
#include "ops/check.h"
#include "ops/pointwise.h"

namespace danlu::ops {
namespace {

/// Kernels write and read by these numbers, and beside the pages where one is wrong.
void check_pages(const Pages& pages, int64_t layer) {
  require(layer >= 0 && layer < pages.shape.layers && pages.per_slab > 0, "cached_attention",
          "pages hold ", pages.shape, ", not layer ", layer);
  for (const at::Tensor& slab : pages.slabs) {
    require(slab.dim() == 2 && slab.size(0) == pages.per_slab &&
                slab.size(1) == pages.shape.elements() && slab.is_contiguous() &&
                slab.scalar_type() == pages.slabs.front().scalar_type(),
            "cached_attention", "a slab ", slab.sizes(), ' ', slab.scalar_type(),
            " must be contiguous, [", pages.per_slab, ", ", pages.shape.elements(),
            "], and like the others");
  }
}

void check_table(const Pages& pages, const CachedSequences& sequences, int64_t sequence) {
  const int64_t num_new = sequences.num_new[static_cast<size_t>(sequence)],
                length = sequences.lengths[static_cast<size_t>(sequence)];
  const int64_t room = sequences.host_tables_BP.size(1);
  require(num_new >= 0 && num_new <= length && length <= room * kPageTokens, "cached_attention",
          length, " tokens, ", num_new, " of them new, do not fit ", room, " pages");
  const int32_t* const table = sequences.host_table(sequence);
  for (int64_t i = 0; i * kPageTokens < length; ++i) {
    const int64_t page = table[i];
    require(page >= 0 && page < pages.count(), "cached_attention", "a table names page ", page,
            " of ", pages.count());
  }
}

void check_sequences(const Pages& pages, const CachedSequences& sequences, int64_t layer) {
  check_pages(pages, layer);
  const at::Tensor &host = sequences.host_tables_BP, &own = sequences.tables_BP;
  const auto is_table = [&](const at::Tensor& table) {
    return table.defined() && table.dim() == 2 && table.scalar_type() == at::kInt &&
           table.is_contiguous() && table.size(0) == sequences.count() &&
           table.size(1) == host.size(1);
  };
  require(is_table(host) && is_table(own) && host.device().is_cpu() &&
              (!own.device().is_cpu() || own.data_ptr() == host.data_ptr()) &&
              sequences.num_new.size() == sequences.lengths.size(),
          "cached_attention", "tables of ", sequences.count(),
          " sequences must be contiguous int32 [B, P], on the host and where the pages are");
  for (int64_t s = 0; s < sequences.count(); ++s) check_table(pages, sequences, s);
}

/// The keys and values of the new tokens belong into the pages.
void check_new(const at::Tensor& k_NKD, const at::Tensor& v_NKD, const Pages& pages,
               const CachedSequences& sequences, int64_t layer) {
  const PageShape& shape = pages.shape;
  require(k_NKD.dim() == 3 && v_NKD.dim() == 3 && k_NKD.size(0) == v_NKD.size(0) &&
              k_NKD.size(1) == v_NKD.size(1) && k_NKD.scalar_type() == v_NKD.scalar_type(),
          "cached_attention", "k ", k_NKD.sizes(), ' ', k_NKD.scalar_type(), ", v ", v_NKD.sizes(),
          ' ', v_NKD.scalar_type(), " must be [N, K, D] and [N, K, Dv] of one dtype");
  check_sequences(pages, sequences, layer);
  require(shape.heads == k_NKD.size(1) && shape.key_dim == k_NKD.size(2) &&
              shape.value_dim == v_NKD.size(2),
          "cached_attention", "k ", k_NKD.sizes(), ", v ", v_NKD.sizes(), " do not fit pages of ",
          shape);
  require(pages.slabs.empty() || pages.slabs.front().scalar_type() == k_NKD.scalar_type(),
          "cached_attention", "k ", k_NKD.scalar_type(), " does not fit the pages' dtype");
  int64_t num_new = 0;
  for (const int64_t count : sequences.num_new) num_new += count;
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

/// New tokens of a sequence from which on making keys and values of all rows of a latent costs less
/// than wide queries: DeepSeek's heads are about even at 170.
constexpr int64_t kRepayExpansion = 128;

/// `table` reads pages, or is null. More new tokens than a few repay a copy of the keys.
Way way_of(const CachedSequences& sequences, int64_t sequence, const Backend* table) {
  const int64_t num_new = sequences.num_new[static_cast<size_t>(sequence)],
                length = sequences.lengths[static_cast<size_t>(sequence)];
  if (num_new == length && (length > 1 || !table)) return Way::kAsGiven;
  return table && num_new < table->fewest_queries ? Way::kPages : Way::kGathered;
}

Segments segments_of_cached(const CachedSequences& sequences) {
  Segments segments{{0}, {0}};
  for (size_t s = 0; s < sequences.lengths.size(); ++s) {
    segments.q_starts.push_back(segments.q_starts.back() + sequences.num_new[s]);
    segments.k_starts.push_back(segments.k_starts.back() + sequences.lengths[s]);
  }
  return segments;
}

at::Tensor gathered_of(const Pages& pages, const CachedSequences& sequences, int64_t sequence,
                       int64_t layer, int64_t which) {
  const int64_t length = sequences.lengths[static_cast<size_t>(sequence)];
  const int64_t dim = which == 0 ? pages.shape.key_dim : pages.shape.value_dim;
  at::Tensor all = at::empty({length, pages.shape.heads, dim}, pages.slabs.front().options());
  each_page_part(
      sequences.host_table(sequence), 0, length,
      [&](int64_t page, int64_t place, int64_t at, int64_t count) {
        all.narrow(0, at, count)
            .copy_(pages.rows(page, layer, which).narrow(1, place, count).transpose(0, 1));
      });
  return all;
}

at::Tensor all_gathered(const Pages& pages, const CachedSequences& sequences, int64_t layer,
                        int64_t which) {
  std::vector<at::Tensor> parts;
  for (int64_t s = 0; s < sequences.count(); ++s)
    parts.push_back(gathered_of(pages, sequences, s, layer, which));
  return joined(parts, 0);
}

}  // namespace

CachedSequences cached_sequences(const std::vector<std::vector<int32_t>>& tables,
                                 std::vector<int64_t> num_new, std::vector<int64_t> lengths,
                                 const at::Device& device) {
  size_t longest = 1;
  for (const std::vector<int32_t>& table : tables) longest = std::max(longest, table.size());
  const at::Tensor host =
      at::full({static_cast<int64_t>(tables.size()), static_cast<int64_t>(longest)}, -1, at::kInt);
  for (size_t s = 0; s < tables.size(); ++s)
    std::copy(tables[s].begin(), tables[s].end(), host.data_ptr<int32_t>() + s * longest);
  return {host, device::sent(host, device), std::move(num_new), std::move(lengths)};
}

void store_in_pages(const at::Tensor& k_NKD, const at::Tensor& v_NKD, const Pages& pages,
                    const CachedSequences& sequences, int64_t layer) {
  check_new(k_NKD, v_NKD, pages, sequences, layer);
  if (const auto store = backend_of(k_NKD.device().type()).store_in_pages)
    return store(k_NKD, v_NKD, pages, sequences, layer);
  int64_t first = 0;
  for (int64_t s = 0; s < sequences.count(); ++s) {
    const int64_t num_new = sequences.num_new[static_cast<size_t>(s)],
                  length = sequences.lengths[static_cast<size_t>(s)];
    for (const auto& [x_NKD, which] : {std::pair(k_NKD, 0), std::pair(v_NKD, 1)}) {
      each_page_part(sequences.host_table(s), length - num_new, length,
                     [&](int64_t page, int64_t place, int64_t from, int64_t count) {
                       pages.rows(page, layer, which)
                           .narrow(1, place, count)
                           .copy_(x_NKD.narrow(0, first + from, count).transpose(0, 1));
                     });
    }
    first += num_new;
  }
}

at::Tensor gathered(const Pages& pages, const CachedSequences& sequences, int64_t sequence,
                    int64_t layer, int64_t which) {
  check_sequences(pages, sequences, layer);
  require(sequence >= 0 && sequence < sequences.count() && !pages.slabs.empty(), "cached_attention",
          "sequence ", sequence, " of ", sequences.count());
  return gathered_of(pages, sequences, sequence, layer, which);
}

namespace {

/// The table that reads pages with these options, or null.
const Backend* pages_table(const at::Tensor& q_NQD, const AttentionOptions& options) {
  const Backend* const table = fused_for(Work::kRows, q_NQD);
  const bool reads_pages = table && table->attention_over_pages && options.chunk == 0 &&
                           (options.softcap == 0 || table->caps_scores);
  return reads_pages ? table : nullptr;
}

/// Tokens of neighbouring sequences that go one way, and so go together.
struct SameWay {
  Way way;
  CachedSequences sequences;
  int64_t first, count;  ///< new tokens

  at::Tensor of(const at::Tensor& x_N) const {
    return count == x_N.size(0) ? x_N : x_N.narrow(0, first, count);
  }
  bool are_many() const {
    for (const int64_t num_new : sequences.num_new)
      if (num_new < kRepayExpansion) return false;
    return true;
  }
};

/// attend(SameWay) of each, together.
template <typename Attend>
at::Tensor by_way(const CachedSequences& sequences, const Backend* table, const Attend& attend) {
  std::vector<at::Tensor> parts;
  int64_t first = 0;
  for (int64_t begin = 0, end = 0; begin < sequences.count(); begin = end) {
    const Way way = way_of(sequences, begin, table);
    int64_t count = 0;
    for (; end < sequences.count() && way_of(sequences, end, table) == way; ++end)
      count += sequences.num_new[static_cast<size_t>(end)];
    parts.push_back(attend(SameWay{way, sequences.part(begin, end), first, count}));
    first += count;
  }
  return joined(parts, 0);
}

}  // namespace

at::Tensor cached_attention(const at::Tensor& q_NQD, const at::Tensor& k_NKD,
                            const at::Tensor& v_NKD, const Pages& pages,
                            const CachedSequences& sequences, int64_t layer,
                            const AttentionOptions& options) {
  check_new(k_NKD, v_NKD, pages, sequences, layer);
  check_queries(q_NQD, k_NKD, options);
  const Backend* const table = pages_table(q_NQD, options);
  return by_way(sequences, table, [&](const SameWay& here) {
    const at::Tensor q = here.of(q_NQD);
    if (here.way == Way::kPages)
      return table->attention_over_pages(q, pages, here.sequences, layer, options);
    const Segments segments = segments_of_cached(here.sequences);
    if (here.way == Way::kAsGiven)
      return attention(q, here.of(k_NKD), here.of(v_NKD), segments, options);
    return attention(q, all_gathered(pages, here.sequences, layer, 0),
                     all_gathered(pages, here.sequences, layer, 1), segments, options);
  });
}

at::Tensor cached_latent_attention(const LatentQueries& queries, const Pages& pages,
                                   const CachedSequences& sequences, int64_t layer,
                                   const AttentionOptions& options) {
  const at::Tensor rows_N1R = queries.rows_NR.unsqueeze(1);
  store_in_pages(rows_N1R, rows_N1R.narrow(2, 0, 0), pages, sequences, layer);
  const at::Tensor& q_NQD = queries.q_NQD;
  require(q_NQD.dim() == 3 && q_NQD.size(0) == rows_N1R.size(0) &&
              q_NQD.scalar_type() == rows_N1R.scalar_type(),
          "cached_attention", "q ", q_NQD.sizes(), ' ', q_NQD.scalar_type(), " does not fit rows ",
          queries.rows_NR.sizes(), ' ', queries.rows_NR.scalar_type());
  const Backend* const table = pages_table(q_NQD, options);
  const auto expanded = [&](const at::Tensor& q, const at::Tensor& rows_MR,
                            const Segments& segments) {
    const LatentQueries::Expanded made = queries.expand(rows_MR);
    return attention(q, made.k_MQD, made.v_MQD, segments, options);
  };
  return by_way(sequences, table, [&](const SameWay& here) {
    const at::Tensor q = here.of(q_NQD);
    if (here.way == Way::kPages) {
      return queries.values(
          table->attention_over_pages(queries.absorb(q), pages, here.sequences, layer, options));
    }
    const Segments segments = segments_of_cached(here.sequences);
    if (here.way == Way::kAsGiven) return expanded(q, here.of(queries.rows_NR), segments);
    const at::Tensor rows_M1R = all_gathered(pages, here.sequences, layer, 0);
    if (here.are_many()) return expanded(q, rows_M1R.squeeze(1), segments);
    return queries.values(attention(queries.absorb(q), rows_M1R, rows_M1R, segments, options));
  });
}

}  // namespace danlu::ops
