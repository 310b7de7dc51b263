// text/tokenizer/piece_cache.h: remembers the ids of short pieces of text.
#pragma once
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace danlu::text {

static_assert(std::endian::native == std::endian::little, "PieceCache keys are little-endian");

/// A cache with two places for each piece: a newer one takes the place of the older of those it
/// meets there. An entry is one cache line. Not thread-safe.
class PieceCache {
 public:
  static constexpr size_t kMaxLength = 30;
  static constexpr size_t kMaxIds = 7;
  /// Set in a key's last word, it keeps two kinds of pieces with the same text apart.
  static constexpr uint64_t kOtherKind = uint64_t{1} << 63;
  /// The piece in 30 bytes, zero-filled, then its length in 2.
  struct Key {
    uint64_t words[4];
    bool operator==(const Key& o) const {
      return ((words[0] ^ o.words[0]) | (words[1] ^ o.words[1]) | (words[2] ^ o.words[2]) |
              (words[3] ^ o.words[3])) == 0;
    }
  };
  struct alignas(64) Entry {
    Key key{};
    int32_t count = 0;
    TokenId ids[kMaxIds];
  };

  /// REQUIRES: 0 < piece.size() <= kMaxLength; `readable` bytes may be read from piece.data().
  static Key make_key(std::string_view piece, size_t readable) {
    Key key;
    const size_t length = piece.size();
    if (readable >= 32) {
      std::memcpy(key.words, piece.data(), 32);
      for (size_t i = 0; i < 4; ++i) key.words[i] &= kMasks[length].words[i];
    } else {
      std::memset(key.words, 0, sizeof key.words);
      std::memcpy(key.words, piece.data(), length);
    }
    key.words[3] |= static_cast<uint64_t>(length) << 48;
    return key;
  }
  /// The entry of a key; nullptr if there is none.
  const Entry* find(const Key& key) {
    if (entries_.empty()) entries_.resize(kEntries);
    const Entry* const pair = entries_.data() + first_of(key);
    if (pair[0].key == key) return pair;
    return pair[1].key == key ? pair + 1 : nullptr;
  }
  /// Where the ids of a key that find() did not find are to be kept.
  Entry& add(const Key& key) {
    Entry* const pair = entries_.data() + first_of(key);
    pair[1] = pair[0];
    pair[0].key = key;
    return pair[0];
  }

 private:
  /// By length: all bits of the bytes that a piece has.
  static constexpr std::array<Key, kMaxLength + 1> kMasks = [] {
    std::array<Key, kMaxLength + 1> masks{};
    for (size_t length = 0; length <= kMaxLength; ++length) {
      for (size_t byte = 0; byte < length; ++byte)
        masks[length].words[byte / 8] |= uint64_t{0xFF} << (byte % 8 * 8);
    }
    return masks;
  }();
  static size_t first_of(const Key& key) {
    constexpr uint64_t kA = 0x9E3779B97F4A7C15ull, kB = 0xD6E8FEB86659FD93ull;
    uint64_t h = (key.words[0] ^ key.words[2] * kB) * kA;
    h ^= (key.words[1] ^ std::rotl(key.words[3], 23)) * kB;
    h ^= h >> 32;
    h *= kA;
    return static_cast<size_t>(h >> (64 - kPairBits)) * 2;
  }
  static constexpr int kPairBits = 15;
  static constexpr size_t kEntries = size_t{2} << kPairBits;
  std::vector<Entry> entries_;
};

}  // namespace danlu::text
