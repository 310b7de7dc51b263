// ops/segments.h: which tokens of a packed sequence may see each other.
#pragma once
#include <cstdint>
#include <vector>

namespace danlu::ops {

/// Queries of several sequences lie one after the other in a [N, …] tensor; keys in a [M, …]
/// tensor. Segment s owns queries [q_starts[s], q_starts[s+1]) and keys [k_starts[s],
/// k_starts[s+1]). In a causal one the last query sees the last key, and query i from the end sees
/// keys up to i from the end. In another every query sees every key. Training: both arrays are
/// equal. Decoding with a cache: more keys than queries.
struct Segments {
  std::vector<int64_t> q_starts;
  std::vector<int64_t> k_starts;
  /// Of the first segments whether each is causal; those beyond its end are.
  std::vector<bool> causal = {};
  int64_t count() const { return static_cast<int64_t>(q_starts.size()) - 1; }
  bool is_causal(size_t segment) const { return segment >= causal.size() || causal[segment]; }
};

/// Queries [q, q + q_len) meet keys [k, k + k_len) of the same sequence, in which the first of the
/// queries stands `lead` places behind the first of the keys, or before it where negative. A query
/// sees keys up to its own place; where the span is not causal it sees all, and `lead` says
/// nothing.
struct Span {
  int64_t q = 0, q_len = 0, k = 0, k_len = 0, lead = 0;
  bool causal = true;
};
/// Of one call: a query is in at most one; those of the same keys follow each other, others share
/// none. Some may be causal and others not.
using Spans = std::vector<Span>;
/// One for each segment that has queries.
Spans spans_of(const Segments& segments);

}  // namespace danlu::ops
