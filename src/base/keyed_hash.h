// base/keyed_hash.h: a hash that only who knows its key can compute.
#pragma once
#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string_view>

namespace danlu {

/// SipHash-2-4 (Aumasson and Bernstein, 2012). Without the key nobody finds two inputs of one hash
/// other than by trying: for what strangers choose. Takes its input in pieces of any sizes.
class KeyedHash {
 public:
  using Key = std::array<uint64_t, 2>;
  explicit KeyedHash(const Key& key)
      : state_{key[0] ^ 0x736f6d6570736575, key[1] ^ 0x646f72616e646f6d,
               key[0] ^ 0x6c7967656e657261, key[1] ^ 0x7465646279746573} {}

  void add(std::string_view bytes) {
    const size_t held = size_ % 8;
    size_ += bytes.size();
    if (held > 0) {
      const size_t more = std::min(8 - held, bytes.size());
      std::copy_n(bytes.begin(), more, tail_.begin() + static_cast<std::ptrdiff_t>(held));
      bytes.remove_prefix(more);
      if (held + more < 8) return;
      take(word_of(tail_.data()));
    }
    for (; bytes.size() >= 8; bytes.remove_prefix(8)) take(word_of(bytes.data()));
    std::copy(bytes.begin(), bytes.end(), tail_.begin());
  }

  /// The hash of all that was added; more may follow.
  uint64_t value() const {
    std::array<char, 8> last = {};
    std::copy_n(tail_.begin(), size_ % 8, last.begin());
    last[7] = static_cast<char>(size_ % 256);
    KeyedHash end = *this;
    end.take(word_of(last.data()));
    end.state_[2] ^= 0xff;
    end.mix(4);
    return end.state_[0] ^ end.state_[1] ^ end.state_[2] ^ end.state_[3];
  }

 private:
  /// Eight bytes, the first of them the lowest.
  static uint64_t word_of(const char* bytes) {
    uint64_t word = 0;
    for (size_t i = 0; i < 8; ++i)
      word |= uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
    return word;
  }
  void take(uint64_t word) {
    state_[3] ^= word;
    mix(2);
    state_[0] ^= word;
  }
  void mix(int rounds) {
    auto& v = state_;
    for (int i = 0; i < rounds; ++i) {
      v[0] += v[1];
      v[1] = std::rotl(v[1], 13) ^ v[0];
      v[0] = std::rotl(v[0], 32);
      v[2] += v[3];
      v[3] = std::rotl(v[3], 16) ^ v[2];
      v[0] += v[3];
      v[3] = std::rotl(v[3], 21) ^ v[0];
      v[2] += v[1];
      v[1] = std::rotl(v[1], 17) ^ v[2];
      v[2] = std::rotl(v[2], 32);
    }
  }

  std::array<uint64_t, 4> state_;
  std::array<char, 8> tail_ = {};  ///< the bytes behind the last whole word
  size_t size_ = 0;
};

/// A key that this process drew, and that nobody else knows.
inline const KeyedHash::Key& key_of_process() {
  static const KeyedHash::Key key = [] {
    std::random_device device;
    const auto word = [&] { return uint64_t{device()} << 32 | device(); };
    return KeyedHash::Key{word(), word()};
  }();
  return key;
}

}  // namespace danlu
