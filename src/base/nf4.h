// base/nf4.h: numbers as codes of 4 bits in blocks with a factor each (NF4, QLoRA, Dettmers et al.
// 2023, arXiv:2305.14314), bit for bit as bitsandbytes makes and stores them.
//
// A matrix is one row of numbers, row-major. Block b holds numbers [b * block, (b + 1) * block),
// the last one what is left; it may begin in one row and end in another. A number is
// kNf4Numbers[code] times the block's factor, the largest magnitude in it. Two codes are a byte,
// the first in the upper half.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace danlu {

/// Numbers of a block where nothing else is said; and of those that bitsandbytes allows the
/// largest. All are powers of two from 32 on.
inline constexpr int64_t kNf4Block = 64, kLargestNf4Block = 4096;
/// Factors of one group, where they are quantised as well.
inline constexpr int64_t kNf4Group = 256;

/// The number of each code, ascending.
extern const std::array<float, 16> kNf4Numbers;
/// The 256 numbers of a factor's code, ascending: bitsandbytes' signed dynamic map of 8 bits.
const std::array<float, 256>& nf4_factor_numbers();

inline int64_t nf4_blocks(int64_t count, int64_t block) { return (count + block - 1) / block; }

/// The codes of `count` numbers, of which the first begins a block, and a factor for each block. An
/// odd last number shares its byte with a code of zero.
/// The code is that of the nearest number, of two the lower; a block of zeros has zero's.
/// codes: (count + 1) / 2 bytes. REQUIRES: all numbers are finite; block is even.
void quantize_nf4(const float* numbers, int64_t count, int64_t block, uint8_t* codes,
                  float* factors);

/// Factors in 8 bits ("double quantisation"): factor f is
/// nf4_factor_numbers()[codes[f]] * groups[f / kNf4Group] + offset.
struct Nf4Factors {
  std::vector<uint8_t> codes;
  std::vector<float> groups;
  float offset = 0;  ///< the factors' mean, summed in the order in which torch does on one thread
};
Nf4Factors quantize_nf4_factors(std::span<const float> factors);
inline float nf4_factor(uint8_t code, float group, float offset) {
  return nf4_factor_numbers()[code] * group + offset;
}

/// A whole matrix in NF4.
struct Nf4Codes {
  std::vector<uint8_t> codes;
  std::vector<float> factors;  ///< empty where they are quantised
  Nf4Factors doubly;
  bool is_doubly() const { return !doubly.codes.empty(); }
  float factor(int64_t block) const {
    const auto b = static_cast<size_t>(block);
    return is_doubly() ? nf4_factor(doubly.codes[b], doubly.groups[b / kNf4Group], doubly.offset)
                       : factors[b];
  }
};

/// The code of number `index` of packed codes.
inline unsigned nf4_code(const uint8_t* codes, int64_t index) {
  return (codes[index / 2] >> (index % 2 == 0 ? 4 : 0)) & 15u;
}

}  // namespace danlu
