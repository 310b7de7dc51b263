// ops/segments.h: which tokens of a packed sequence may see each other.
#pragma once
#include <cstdint>
#include <vector>

namespace danlu::ops {

/// Queries of several sequences lie one after the other in a [N, …] tensor; keys in a [M, …]
/// tensor. Segment s owns queries [q_starts[s], q_starts[s+1]) and keys [k_starts[s],
/// k_starts[s+1]). Causality: the last query of a segment sees its last key; query i from the end
/// sees keys up to i from the end. Training: both arrays are equal. Decoding with a cache: more
/// keys than queries.
struct Segments {
  std::vector<int64_t> q_starts;
  std::vector<int64_t> k_starts;
  int64_t count() const { return static_cast<int64_t>(q_starts.size()) - 1; }
};

/// Queries [q, q + q_len) meet keys [k, k + k_len) of the same sequence, in which the first of the
/// queries stands `lead` places behind the first of the keys, or before it where negative. A query
/// sees keys up to its own place.
struct Span {
  int64_t q = 0, q_len = 0, k = 0, k_len = 0, lead = 0;
};
/// Of one call: a query is in at most one; those of the same keys follow each other, others share
/// none.
using Spans = std::vector<Span>;
/// One for each segment.
Spans spans_of(const Segments& segments);

}  // namespace danlu::ops
