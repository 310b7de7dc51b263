// text/tokenizer/piece_cache.h: remembers the ids of short pieces of text.
#pragma once
#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace danlu::text {

static_assert(std::endian::native == std::endian::little, "PieceCache keys are little-endian");

/// A direct-mapped cache: a newer piece takes the place of an older one with the same slot. An
/// entry is one cache line. Not thread-safe.
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
      for (size_t i = 0; i < 4; ++i) {
        const size_t kept = length > i * 8 ? length - i * 8 : 0;
        if (kept < 8) key.words[i] &= (uint64_t{1} << (kept * 8)) - 1;
      }
    } else {
      std::memset(key.words, 0, sizeof key.words);
      std::memcpy(key.words, piece.data(), length);
    }
    key.words[3] |= static_cast<uint64_t>(length) << 48;
    return key;
  }
  /// The entry a key lives in; it is a hit if entry.key == key.
  Entry& slot(const Key& key) {
    if (entries_.empty()) entries_.resize(kSlots);
    constexpr uint64_t kA = 0x9E3779B97F4A7C15ull, kB = 0xD6E8FEB86659FD93ull;
    uint64_t h = (key.words[0] ^ key.words[2] * kB) * kA;
    h ^= (key.words[1] ^ std::rotl(key.words[3], 23)) * kB;
    h ^= h >> 32;
    h *= kA;
    return entries_[h >> (64 - kSlotBits)];
  }

 private:
  static constexpr int kSlotBits = 15;
  static constexpr size_t kSlots = size_t{1} << kSlotBits;
  std::vector<Entry> entries_;
};

}  // namespace danlu::text
