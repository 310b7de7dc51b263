#include "data/megatron/md5.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace danlu::data {
namespace {

using Words = std::array<uint32_t, 4>;

// RFC 1321 §3.4: T[i] is the integer part of 2^32 · |sin(i + 1)|, i + 1 in radians.
std::array<uint32_t, 64> sine_table() {
  std::array<uint32_t, 64> table;
  for (int i = 0; i < 64; ++i) {
    table[i] =
        static_cast<uint32_t>(static_cast<uint64_t>(std::fabs(std::sin(i + 1.0)) * 4294967296.0));
  }
  return table;
}

void digest_block(const char* block, Words& state) {
  static const std::array<uint32_t, 64> kSines = sine_table();
  constexpr int kTurns[4][4] = {{7, 12, 17, 22}, {5, 9, 14, 20}, {4, 11, 16, 23}, {6, 10, 15, 21}};
  uint32_t words[16];
  std::memcpy(words, block, sizeof words);
  auto [a, b, c, d] = state;
  for (int i = 0; i < 64; ++i) {
    uint32_t mixed;
    int word;
    switch (i / 16) {
      case 0:
        mixed = (b & c) | (~b & d);
        word = i;
        break;
      case 1:
        mixed = (d & b) | (~d & c);
        word = (5 * i + 1) % 16;
        break;
      case 2:
        mixed = b ^ c ^ d;
        word = (3 * i + 5) % 16;
        break;
      default:
        mixed = c ^ (b | ~d);
        word = (7 * i) % 16;
    }
    const uint32_t turned = std::rotl(a + mixed + kSines[i] + words[word], kTurns[i / 16][i % 4]);
    a = d;
    d = c;
    c = b;
    b += turned;
  }
  state[0] += a;
  state[1] += b;
  state[2] += c;
  state[3] += d;
}

}  // namespace

std::string md5_hex(std::string_view bytes) {
  Words state = {0x67452301u, 0xefcdab89u, 0x98badcfeu, 0x10325476u};
  size_t at = 0;
  for (; bytes.size() - at >= 64; at += 64) digest_block(bytes.data() + at, state);

  std::string tail(bytes.substr(at));
  tail.push_back('\x80');
  while (tail.size() % 64 != 56) tail.push_back('\0');
  const uint64_t bits = static_cast<uint64_t>(bytes.size()) * 8;
  tail.append(reinterpret_cast<const char*>(&bits), sizeof bits);
  for (at = 0; at < tail.size(); at += 64) digest_block(tail.data() + at, state);

  std::string hex;
  for (const uint32_t word : state) {
    for (int shift = 0; shift < 32; shift += 8)
      hex += fmt::format("{:02x}", (word >> shift) & 0xff);
  }
  return hex;
}

}  // namespace danlu::data
