#include "text/tokenizer/vocabulary.h"

#include <bit>

namespace danlu::text {

void Vocabulary::reserve(size_t count, size_t text_bytes) {
  text_.reserve(text_bytes);
  spans_.reserve(count);
  const size_t wanted = std::bit_ceil(count * 2 + 16);
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
  if ((count_ + 1) * 2 > slots_.size()) grow();
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

}  // namespace danlu::text
