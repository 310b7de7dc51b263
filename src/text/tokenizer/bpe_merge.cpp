// The merging itself. A short word is merged by scanning for its best pair. A long one is cut into
// stretches, which are merged one by one and then joined:
//
// Merges are taken in one order (lowest rank, then leftmost), and those inside a part of the text
// follow one another there as they would if the part stood alone, up to the first merge over its
// border. So tokens of a text are what the whole gives exactly if every two neighbours, merged by
// themselves, stay apart. Where two stretches meet that is asked of one pair of tokens; if it does
// not hold, the text around the joint is merged again, as far to both sides as it takes.
#include <algorithm>
#include <functional>

#include "text/tokenizer/bpe_model.h"

namespace danlu::text {

namespace {

constexpr uint32_t kStretchSymbols = 32;
// Tokens on both sides of a joint that does not hold which are merged again at first.
constexpr size_t kMendTokens = 2;
// Beyond this many symbols a queue of candidates beats a scan for the best pair.
constexpr uint32_t kScanSymbols = 96;
constexpr size_t kJointSlots = size_t{1} << 12;

}  // namespace

void BpeModel::merge_few(Scratch& scratch) const {
  TokenId* symbols = scratch.merge.symbols.data();
  uint32_t* ranks = scratch.merge.ranks.data();
  size_t count = scratch.merge.symbols.size();
  while (count > 1) {
    uint32_t best = MergeTable::kNone;
    for (size_t i = 0; i + 1 < count; ++i) best = std::min(best, ranks[i]);
    if (best == MergeTable::kNone) break;
    size_t at = 0;
    while (ranks[at] != best) ++at;
    symbols[at] = merges_.result(symbols[at], symbols[at + 1]);
    const size_t moved = count - at - 2;
    std::memmove(symbols + at + 1, symbols + at + 2, moved * sizeof *symbols);
    // ranks[at] is computed anew; the pair that began at at + 1 now begins at `at`.
    std::memmove(ranks + at + 1, ranks + at + 2, moved * sizeof *ranks);
    --count;
    ranks[at] = at + 1 < count ? merges_.rank(symbols[at], symbols[at + 1]) : MergeTable::kNone;
    if (at > 0) ranks[at - 1] = merges_.rank(symbols[at - 1], symbols[at]);
  }
  scratch.ids.append(symbols, count);
}

void BpeModel::merge_range_by_scan(uint32_t first, uint32_t last, MergeScratch& merge,
                                   std::vector<BpeToken>& out) const {
  TokenId symbols[kScanSymbols];
  uint32_t ranks[kScanSymbols], begins[kScanSymbols];
  size_t count = last - first;
  std::copy_n(merge.symbols.data() + first, count, symbols);
  std::copy_n(merge.ranks.data() + first, count, ranks);
  ranks[count - 1] = MergeTable::kNone;
  for (uint32_t i = 0; i < count; ++i) begins[i] = first + i;
  while (count > 1) {
    uint32_t best = MergeTable::kNone;
    for (size_t i = 0; i + 1 < count; ++i) best = std::min(best, ranks[i]);
    if (best == MergeTable::kNone) break;
    size_t at = 0;
    while (ranks[at] != best) ++at;
    symbols[at] = merges_.result(symbols[at], symbols[at + 1]);
    const size_t moved = count - at - 2;
    std::memmove(symbols + at + 1, symbols + at + 2, moved * sizeof *symbols);
    std::memmove(begins + at + 1, begins + at + 2, moved * sizeof *begins);
    std::memmove(ranks + at + 1, ranks + at + 2, moved * sizeof *ranks);
    --count;
    ranks[at] = at + 1 < count ? merges_.rank(symbols[at], symbols[at + 1]) : MergeTable::kNone;
    if (at > 0) ranks[at - 1] = merges_.rank(symbols[at - 1], symbols[at]);
  }
  for (size_t i = 0; i < count; ++i) out.push_back({symbols[i], begins[i]});
}

void BpeModel::merge_range_by_queue(uint32_t first, uint32_t last, MergeScratch& merge,
                                    std::vector<BpeToken>& out) const {
  const uint32_t count = last - first;
  std::vector<TokenId>& symbols = merge.part_symbols;
  std::vector<uint32_t>&ranks = merge.part_ranks, &next = merge.next, &previous = merge.previous;
  std::vector<uint64_t>& queue = merge.queue;
  symbols.assign(merge.symbols.begin() + first, merge.symbols.begin() + last);
  ranks.assign(merge.ranks.begin() + first, merge.ranks.begin() + last);
  ranks[count - 1] = MergeTable::kNone;
  next.resize(count);
  previous.resize(count);
  queue.clear();
  for (uint32_t i = 0; i < count; ++i) {
    next[i] = i + 1;
    previous[i] = i - 1;
    if (ranks[i] != MergeTable::kNone) queue.push_back(uint64_t{ranks[i]} << 32 | i);
  }
  // Lowest rank first, then leftmost.
  const std::greater<> later;
  std::make_heap(queue.begin(), queue.end(), later);
  const auto set_rank = [&](uint32_t at) {
    ranks[at] = next[at] < count ? merges_.rank(symbols[at], symbols[next[at]]) : MergeTable::kNone;
    if (ranks[at] == MergeTable::kNone) return;
    queue.push_back(uint64_t{ranks[at]} << 32 | at);
    std::push_heap(queue.begin(), queue.end(), later);
  };
  while (!queue.empty()) {
    const uint64_t top = queue.front();
    std::pop_heap(queue.begin(), queue.end(), later);
    queue.pop_back();
    const auto at = static_cast<uint32_t>(top);
    if (ranks[at] != static_cast<uint32_t>(top >> 32)) continue;  // one of the two merged since
    const uint32_t gone = next[at];
    symbols[at] = merges_.result(symbols[at], symbols[gone]);
    ranks[gone] = MergeTable::kNone;
    next[at] = next[gone];
    if (next[at] < count) previous[next[at]] = at;
    set_rank(at);
    if (at > 0) set_rank(previous[at]);
  }
  for (uint32_t at = 0; at < count; at = next[at]) out.push_back({symbols[at], first + at});
}

/// Appends the tokens that the symbols [first, last) become by themselves.
void BpeModel::merge_range(uint32_t first, uint32_t last, MergeScratch& merge,
                           std::vector<BpeToken>& out) const {
  if (last - first <= kScanSymbols) {
    merge_range_by_scan(first, last, merge, out);
  } else {
    merge_range_by_queue(first, last, merge, out);
  }
}

/// True if two neighbouring tokens, the second of which ends before symbol `end`, stay as they are
/// when merged by themselves.
bool BpeModel::stay_apart(BpeToken left, BpeToken right, uint32_t end, MergeScratch& merge) const {
  // Ids have 26 bits (Vocabulary::kMaxId): the answer has room beside them, and 0 is no entry.
  const uint64_t key = uint64_t{1} << 63 | static_cast<uint64_t>(left.id) << 32 |
                       static_cast<uint64_t>(right.id) << 1;
  uint64_t* slot = nullptr;
  if (ids_tell_symbols_) {
    if (merge.joints.empty()) merge.joints.resize(kJointSlots);
    slot = &merge.joints[(key * 0x9E3779B97F4A7C15ull) >> 52];
    if ((*slot & ~uint64_t{1}) == key) return *slot & 1;
  }
  merge.window.clear();
  merge_range(left.begin, end, merge, merge.window);
  const bool apart = merge.window.size() == 2 && merge.window[0].id == left.id &&
                     merge.window[1].begin == right.begin && merge.window[1].id == right.id;
  if (slot) *slot = key | (apart ? 1 : 0);
  return apart;
}

/// Makes merge.tokens right where tokens [0, joint) and [joint, …) meet; `end`: end of the last.
/// Adds to `merged` how many symbols were merged again. Result: true if no token after the joint
/// stayed.
bool BpeModel::mend_joint(size_t joint, uint32_t end, MergeScratch& merge, size_t& merged) const {
  std::vector<BpeToken>& tokens = merge.tokens;
  size_t left = joint - std::min<size_t>(joint, kMendTokens),
         right = std::min(joint + kMendTokens, tokens.size()), step = 2;
  std::vector<BpeToken> fresh;
  const auto begin_of = [&](size_t i) { return i < tokens.size() ? tokens[i].begin : end; };
  for (;; step *= 2) {
    fresh.clear();
    merge_range(tokens[left].begin, begin_of(right), merge, fresh);
    merged += begin_of(right) - tokens[left].begin;
    const uint32_t fresh_end = fresh.size() > 1 ? fresh[1].begin : begin_of(right);
    const bool left_holds =
        left == 0 || stay_apart(tokens[left - 1], fresh.front(), fresh_end, merge);
    const bool right_holds = right >= tokens.size() ||
                             stay_apart(fresh.back(), tokens[right], begin_of(right + 1), merge);
    if (left_holds && right_holds) break;
    if (!left_holds) left -= std::min(step, left);
    if (!right_holds) right = std::min(right + step, tokens.size());
  }
  const auto at = tokens.begin() + static_cast<std::ptrdiff_t>(left);
  const size_t replaced = right - left;
  const bool all_new = right == tokens.size();
  const size_t kept = std::min(replaced, fresh.size());
  std::copy_n(fresh.begin(), kept, at);
  if (kept < replaced) {
    tokens.erase(at + static_cast<std::ptrdiff_t>(kept),
                 at + static_cast<std::ptrdiff_t>(replaced));
  } else {
    tokens.insert(at + static_cast<std::ptrdiff_t>(kept),
                  fresh.begin() + static_cast<std::ptrdiff_t>(kept), fresh.end());
  }
  return all_new;
}

/// Appends the tokens of the stretch that begins at symbol `begin`. Result: where it ends.
uint32_t BpeModel::merge_stretch(uint32_t begin, MergeScratch& merge) const {
  const auto count = static_cast<uint32_t>(merge.symbols.size());
  uint32_t end = std::min(begin + kStretchSymbols, count);
  // Where two symbols join nothing, tokens end more often.
  for (uint32_t i = 0; end < count && i < kStretchSymbols / 4; ++i) {
    if (merge.ranks[end - 1 - i] != MergeTable::kNone) continue;
    end -= i;
    break;
  }
  merge_range(begin, end, merge, merge.tokens);
  return end;
}

void BpeModel::merge_long(Scratch& scratch) const {
  MergeScratch& merge = scratch.merge;
  std::vector<BpeToken>& tokens = merge.tokens;
  const auto count = static_cast<uint32_t>(merge.symbols.size());
  size_t mended = 0;
  tokens.clear();
  const auto joint_holds = [&](size_t joint, uint32_t end) {
    if (joint == 0) return true;
    const uint32_t second = joint + 1 < tokens.size() ? tokens[joint + 1].begin : end;
    return stay_apart(tokens[joint - 1], tokens[joint], second, merge);
  };
  for (uint32_t begin = 0; begin < count;) {
    const size_t joint = tokens.size();
    uint32_t end = merge_stretch(begin, merge);
    // In a text that repeats, a stretch that begins out of step ends out of step: the next one is
    // to begin with the rest that this one left.
    if (!joint_holds(joint, end) && mend_joint(joint, end, merge, mended) && end < count &&
        tokens.size() > 1 && end - tokens.back().begin < kStretchSymbols / 4) {
      end = tokens.back().begin;
      tokens.pop_back();
    }
    // Vocabularies made to let merges reach far: the queue has a bound that holds for all.
    if (mended > 8 * size_t{count}) {
      tokens.clear();
      merge_range_by_queue(0, count, merge, tokens);
      break;
    }
    begin = end;
  }
  for (const BpeToken& token : tokens) scratch.ids.push(token.id);
}

}  // namespace danlu::text
