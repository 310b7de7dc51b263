// ops/segments.h: which tokens of a packed sequence may see each other.
#pragma once
#include <cstdint>
#include <vector>

namespace danlu::ops {

/// Queries of several sequences lie one after the other in a [N, …] tensor; keys in a [M, …]
/// tensor. Segment s owns queries [q_starts[s], q_starts[s+1]) and keys [k_starts[s],
/// k_starts[s+1]). In a causal segment the last query sees all keys, and the query i before it all
/// but the last i. In a segment that is not causal every query sees every key. In training both
/// arrays are equal; when decoding with a cache there are more keys than queries.
struct Segments {
  std::vector<int64_t> q_starts;
  std::vector<int64_t> k_starts;
  /// causal[s]: whether segment s is. Segments beyond the end of the vector are causal.
  std::vector<bool> causal = {};
  int64_t count() const { return static_cast<int64_t>(q_starts.size()) - 1; }
  bool is_causal(size_t segment) const { return segment >= causal.size() || causal[segment]; }
};

/// Queries [q, q + q_len) meet keys [k, k + k_len) of the same sequence. In the sequence the first
/// query stands `lead` places after the first key, or before it if `lead` is negative. In a causal
/// span a query sees the keys up to its own place. In another it sees all, and `lead` is not used.
struct Span {
  int64_t q = 0, q_len = 0, k = 0, k_len = 0, lead = 0;
  bool causal = true;
};
/// The spans of one call. A query is in at most one of them. Spans with the same keys follow each
/// other, and no others share keys. Some may be causal and others not.
using Spans = std::vector<Span>;
/// One span for each segment that has queries.
Spans spans_of(const Segments& segments);

}  // namespace danlu::ops
