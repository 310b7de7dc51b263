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

}  // namespace danlu::ops
