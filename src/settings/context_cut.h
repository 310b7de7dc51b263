// settings/context_cut.h: which tokens of a packed batch each rank of the context axis holds.
//
// The axis is a ring of groups: ring · ulysses ranks, those of a group neighbours. A group holds
// the pair of chunks (j, 2·ring - 1 - j) of the batch's 2·ring, so that causal attention costs
// every group the same (zig-zag: Megatron-LM core/utils.py get_batch_on_this_cp_rank); its ranks
// hold consecutive parts of the pair. Chunks differ by a token at most, wherever sequences begin.
#pragma once
#include <cstdint>
#include <vector>

#include "base/row_range.h"

namespace danlu::settings {

struct ContextShape {
  int64_t ulysses = 1;  ///< ranks of a group: they exchange heads for tokens
  int64_t ring = 1;     ///< groups, among which keys and values go round
  /// Groups of an inner ring, as many of which as there are form the outer one; divides `ring`.
  int64_t window = 1;

  int64_t size() const { return ulysses * ring; }
  bool is_alone() const { return size() == 1; }
};

/// Whether `members` that exchange heads for tokens can share them: query heads evenly, and of
/// key/value heads each has some or some have each.
inline bool can_share_heads(int64_t heads, int64_t kv_heads, int64_t members) {
  return heads % members == 0 && (kv_heads % members == 0 || members % kv_heads == 0);
}

/// The two chunks of a group's pair, in their order, of `tokens` in all. One group: both halves.
std::vector<RowRange> chunks_of_group(const ContextShape& shape, int64_t group, int64_t tokens);
/// What a rank holds: consecutive rows of its group's pair; at most two ranges, none empty.
std::vector<RowRange> context_rows(const ContextShape& shape, int64_t rank, int64_t tokens);
/// Their number.
int64_t count_context_rows(const ContextShape& shape, int64_t rank, int64_t tokens);

}  // namespace danlu::settings
