#include "text/tokenizer/vocabulary.h"

#include <algorithm>
#include <bit>

namespace danlu::text {

void Vocabulary::reserve(size_t count, size_t text_bytes) {
  text_.reserve(text_bytes);
  spans_.reserve(count);
  const size_t wanted = std::bit_ceil(count * 3 / 2 + 16);
  if (wanted > slots_.size()) {
    slots_.resize(wanted);
    if (count_) grow();
  }
}

void Vocabulary::grow() {
  std::vector<Slot> old(std::max<size_t>(64, slots_.size() * 2));
  old.swap(slots_);
  for (const Slot& slot : old) {
    if (slot.length == kHole) continue;
    size_t at = slot.hash & (slots_.size() - 1);
    while (slots_[at].length != kHole) at = (at + 1) & (slots_.size() - 1);
    slots_[at] = slot;
  }
}

size_t Vocabulary::slot_of(std::string_view token, uint64_t hash) const {
  const size_t mask = slots_.size() - 1;
  const auto short_hash = static_cast<uint32_t>(hash);
  for (size_t at = short_hash & mask;; at = (at + 1) & mask) {
    const Slot& slot = slots_[at];
    if (slot.length == kHole) return at;
    if (slot.hash == short_hash && slot.length == token.size() &&
        std::memcmp(text_.data() + slot.begin, token.data(), token.size()) == 0) {
      return at;
    }
  }
}

void Vocabulary::add(std::string_view token, TokenId id) {
  if (is_full(count_ + 1)) grow();
  const uint64_t hash = hash_text(token);
  Slot& slot = slots_[slot_of(token, hash)];
  if (slot.length == kHole) {
    slot.begin = static_cast<uint32_t>(text_.size());
    slot.length = static_cast<uint32_t>(token.size());
    slot.hash = static_cast<uint32_t>(hash);
    text_.append(token);
    ++count_;
  }
  slot.id = id;
  if (static_cast<size_t>(id) >= spans_.size()) spans_.resize(static_cast<size_t>(id) + 1);
  spans_[id] = {slot.begin, slot.length};
}

TokenId Vocabulary::find(std::string_view token) const {
  if (slots_.empty()) return -1;
  const Slot& slot = slots_[slot_of(token, hash_text(token))];
  return slot.length == kHole ? -1 : slot.id;
}

void Vocabulary::find_all(std::span<const std::string_view> tokens, std::span<TokenId> ids) const {
  constexpr size_t kAtOnce = 32;
  uint64_t hashes[kAtOnce];
  std::fill(ids.begin(), ids.end(), -1);
  for (size_t begin = 0; begin < tokens.size() && !slots_.empty(); begin += kAtOnce) {
    const size_t count = std::min(kAtOnce, tokens.size() - begin);
    for (size_t i = 0; i < count; ++i) {
      hashes[i] = hash_text(tokens[begin + i]);
      __builtin_prefetch(&slots_[static_cast<uint32_t>(hashes[i]) & (slots_.size() - 1)]);
    }
    for (size_t i = 0; i < count; ++i) {
      const Slot& slot = slots_[slot_of(tokens[begin + i], hashes[i])];
      ids[begin + i] = slot.length == kHole ? -1 : slot.id;
    }
  }
}

}  // namespace danlu::text
