// ops/quantized_rows_cpu.h: inner loops over quantised weights, for one thread each. The
// instruction set is chosen when the program runs. Internal to ops.
#pragma once
#include <cstddef>
#include <cstdint>

#include "base/number_blocks.h"
#include "ops/block_weight.h"

namespace danlu::ops::cpu {

/// A band of a BlockWeight (ops/block_weight.h), of `blocks` groups.
struct QuantizedBand {
  const uint8_t *codes, *scales, *supers;
  size_t blocks;
};
/// What 32 numbers of an input are: scale * code; sums of the codes of each half.
struct QuantizedInputBlock {
  float scale;
  int32_t sum[2];
};
/// Rows of an input; the next row begins codes_row codes and facts_row facts further on.
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
