// ops/quantized_rows_cpu.h: inner loops over quantised weights, for one thread each. The
// instruction set is chosen when the program runs. Internal to ops.
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/number_blocks.h"

namespace danlu::ops::cpu {

/// Rows of a weight that lie together: one lane of a vector for each.
inline constexpr size_t kBandRows = 16;

/// 16 rows of a weight, group of 32 columns after group. Of a group:
///   codes   4 bytes of each row after the other are a chunk of 64. Q8_0: chunk c holds columns
///           4c to 4c + 3 (codes as BlockGroup). 4-bit codes: chunk c holds columns 4c on in the
///           lower halves of its bytes, 16 + 4c on in the upper. Q6_K: then two chunks whose byte
///           holds the upper two bits of chunks c, 2 + c, 4 + c and 6 + c of 8, from the lowest
///           bits on.
///   scales  16 F16 of Q8_0 and Q4_0; 16 + 16 bytes: part_scale and offset of Q4_K, both
///           part_scales of Q6_K
/// and of 8 groups of Q4_K and Q6_K in `supers`: 16 F16 scale, of Q4_K 16 offset_scale as well.
struct QuantizedBand {
  const uint8_t *codes, *scales, *supers;
  size_t blocks;
};
constexpr size_t band_code_bytes(BlockType type) {
  return type == BlockType::kQ8_0 ? 512 : type == BlockType::kQ6_K ? 384 : 256;
}
inline constexpr size_t kBandScaleBytes = 32;
constexpr size_t band_super_bytes(BlockType type) {
  return type == BlockType::kQ4_K ? 64 : type == BlockType::kQ6_K ? 32 : 0;
}

/// What 32 numbers of an input are: scale * code; sums of the codes of each half.
struct QuantizedInputBlock {
  float scale;
  int32_t sum[2];
};
/// Rows of an input; the next begins codes_row, facts_row behind.
struct QuantizedInput {
  const int8_t* codes;
  const QuantizedInputBlock* facts;
  size_t codes_row, facts_row;
};

/// scale = largest magnitude / 127, quotients to the nearest integer. A group that holds a NaN or
/// an infinity gets a scale of NaN. REQUIRES: `count` is a multiple of 32.
void quantize_input(const float* x, size_t count, int8_t* codes, QuantizedInputBlock* facts);

/// y[r][0 … 15] = products of input row r with the band's rows, in f32 but for the sums within a
/// group, which are exact.
void multiply_band(BlockType type, const QuantizedBand& w, const QuantizedInput& x, size_t rows,
                   float* y, size_t y_row);

}  // namespace danlu::ops::cpu
