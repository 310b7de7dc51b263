// text/tokenizer/vocabulary.h: the two-way map of token strings and ids.
#pragma once
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace danlu::text {

/// Mixes a short string eight bytes at a time; for hash tables, not for security.
inline uint64_t hash_text(std::string_view s, uint64_t seed = 0) {
  constexpr uint64_t kMultiplier = 0x9E3779B97F4A7C15ull;
  uint64_t h = seed ^ (s.size() * kMultiplier);
  const char* p = s.data();
  size_t left = s.size();
  const auto mix = [&h](uint64_t word) {
    h = (h ^ word) * kMultiplier;
    h ^= h >> 29;
  };
  for (; left >= 8; p += 8, left -= 8) {
    uint64_t word;
    std::memcpy(&word, p, 8);
    mix(word);
  }
  if (left) {
    uint64_t word = 0;
    std::memcpy(&word, p, left);
    mix(word);
  }
  h *= kMultiplier;
  return h ^ (h >> 32);
}

/// Tokens by id and by text. Ids may have holes. Strings are kept in one buffer.
class Vocabulary {
 public:
  void reserve(size_t count, size_t text_bytes);
  /// Adds a token. A text added again takes the new id, as a JSON object's last key wins; an id
  /// given to two texts keeps both for lookup and the last one for id_to_token. REQUIRES: 0 <= id
  /// <= kMaxId.
  void add(std::string_view token, TokenId id);

  /// The id, or -1.
  TokenId find(std::string_view token) const;
  /// find of each, in less time than one after the other: memory is fetched for many at once.
  void find_all(std::span<const std::string_view> tokens, std::span<TokenId> ids) const;
  bool has(TokenId id) const {
    return id >= 0 && static_cast<size_t>(id) < spans_.size() && spans_[id].length != kHole;
  }
  /// REQUIRES: has(id).
  std::string_view token(TokenId id) const {
    return std::string_view(text_).substr(spans_[id].begin, spans_[id].length);
  }
  /// Largest id + 1.
  size_t size() const { return spans_.size(); }
  /// Number of distinct texts.
  size_t count() const { return count_; }

  /// Larger ids are refused by the readers: a broken file must not make us allocate gigabytes.
  static constexpr int64_t kMaxId = (1 << 26) - 1;

 private:
  static constexpr uint32_t kHole = UINT32_MAX;
  struct Span {
    uint32_t begin = 0, length = kHole;
  };
  struct Slot {
    uint32_t begin = 0, length = kHole;
    TokenId id = -1;
    uint32_t hash = 0;
  };
  void grow();
  /// A third of the slots stay free.
  bool is_full(size_t count) const { return count * 3 > slots_.size() * 2; }
  size_t slot_of(std::string_view token, uint64_t hash) const;

  std::string text_;
  std::vector<Span> spans_;
  std::vector<Slot> slots_;
  size_t count_ = 0;
};

}  // namespace danlu::text
