#include "infer/prefix_index.h"

#include <algorithm>
#include <random>

#include "base/rng.h"

namespace danlu::infer {
namespace {

/// Set in the places of roots, so that they differ from all other places.
constexpr uint64_t kRootBit = uint64_t{1} << 63;

std::span<const text::TokenId> page_of(std::span<const text::TokenId> ids, int64_t number) {
  return ids.subspan(static_cast<size_t>(number * ops::kPageTokens), ops::kPageTokens);
}

}  // namespace

PrefixIndex::Place PrefixIndex::root(std::string_view key) {
  // Clients choose a part of the key: none must find one that leads to another's pages.
  static const uint64_t secret = [] {
    std::random_device device;
    return uint64_t{device()} << 32 | device();
  }();
  uint64_t hash = mix64(secret, key.size());
  for (const char c : key) hash = mix64(hash, static_cast<unsigned char>(c));
  return hash | kRootBit;
}

uint64_t PrefixIndex::hash_of(Place before, std::span<const text::TokenId> ids) {
  uint64_t hash = before;
  for (const text::TokenId id : ids) hash = mix64(hash, static_cast<uint64_t>(id));
  return hash;
}

PrefixIndex::Entries::const_iterator PrefixIndex::entry(Place before,
                                                        std::span<const text::TokenId> ids) const {
  const auto [first, past] = entries_.equal_range(hash_of(before, ids));
  const auto found = std::find_if(first, past, [&](const auto& item) {
    return item.second.before == before && std::ranges::equal(item.second.ids, ids);
  });
  return found == past ? entries_.end() : found;
}

PrefixIndex::Found PrefixIndex::find(Place root, std::span<const text::TokenId> ids,
                                     int64_t most) const {
  Found result;
  ids = ids.first(static_cast<size_t>(std::min<int64_t>(most, std::ssize(ids))));
  for (int64_t i = 0; i < std::ssize(ids) / ops::kPageTokens; ++i) {
    const auto found = entry(root, page_of(ids, i));
    if (found == entries_.end()) break;
    root = found->second.behind;
    result.pages.push_back(found->second.page);
    result.places.push_back(root);
  }
  result.tokens = std::ssize(result.pages) * ops::kPageTokens;
  find_part(root, ids.subspan(static_cast<size_t>(result.tokens)), result);
  return result;
}

void PrefixIndex::find_part(Place before, std::span<const text::TokenId> ids, Found& found) const {
  // The newest ones: many requests may end alike, and each search would look at all of them.
  constexpr int kMostLookedAt = 64;
  const auto [first, past] = parts_.equal_range(before);
  int64_t longest = 0;
  auto at = past;
  for (int i = 0; i < kMostLookedAt && at != first; ++i) {
    --at;
    const int64_t common = std::ranges::mismatch(at->second.ids, ids).in2 - ids.begin();
    // Who takes it ends it for others: that must be worth it.
    if (common == 0 || common < longest || 2 * common < std::ssize(at->second.ids)) continue;
    if (longest > 0) found.pages.pop_back();
    longest = common;
    found.pages.push_back(at->second.page);
  }
  found.tokens += longest;
}

PrefixIndex::Place PrefixIndex::add(Place before, std::span<const text::TokenId> ids,
                                    int32_t page) {
  const auto known = entry(before, ids);
  if (known != entries_.end()) return known->second.behind;
  forget(page);
  const auto added = entries_.emplace(hash_of(before, ids),
                                      Entry{before, next_++, {ids.begin(), ids.end()}, page});
  by_page_[page] = added;
  return added->second.behind;
}

void PrefixIndex::add_part(Place before, std::span<const text::TokenId> ids, int32_t page) {
  forget(page);
  part_of_page_[page] = parts_.emplace(before, Part{{ids.begin(), ids.end()}, page});
}

void PrefixIndex::forget(int32_t page) {
  if (const auto part = part_of_page_.find(page); part != part_of_page_.end()) {
    parts_.erase(part->second);
    part_of_page_.erase(part);
  }
  const auto found = by_page_.find(page);
  if (found == by_page_.end()) return;
  entries_.erase(found->second);
  by_page_.erase(found);
}

}  // namespace danlu::infer
