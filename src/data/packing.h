// data/packing.h: which samples share a sequence, decided from their lengths alone.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace danlu::data {

/// Groups of samples: group g holds samples[starts[g]] … samples[starts[g + 1] - 1], in this order.
struct Packs {
  std::vector<int64_t> starts{0};
  std::vector<int64_t> samples;

  int64_t size() const { return static_cast<int64_t>(starts.size()) - 1; }
  std::span<const int64_t> group(int64_t index) const {
    const auto begin = static_cast<size_t>(starts[static_cast<size_t>(index)]);
    const auto end = static_cast<size_t>(starts[static_cast<size_t>(index) + 1]);
    return std::span(samples).subspan(begin, end - begin);
  }
};

/// MindSpeed's `--pack`: fill group after group, always with the longest sample that still fits; of
/// equally long ones the last comes first. REQUIRES: every length in [1, capacity].
/// Source  reference behaviour of MindSpeed-LLM's and LLaMA-Factory's knapsack packing.
Packs pack_greedy(std::span<const int32_t> lengths, int64_t capacity);

/// Best fit decreasing inside windows of `window` samples drawn in an order shuffled by `seed`, so
/// that a group's neighbours are not all of one length. REQUIRES: as above.
Packs pack_best_fit(std::span<const int32_t> lengths, int64_t capacity, uint64_t seed,
                    int64_t window = 8192);

}  // namespace danlu::data
