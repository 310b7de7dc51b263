// weights/gguf/q8_0.h: GGUF's 8-bit blocks: 32 numbers as one F16 scale and 32 signed bytes.
#pragma once
#include <cstddef>

namespace danlu::weights::gguf {

inline constexpr size_t kQ8Block = 32, kQ8BlockBytes = 34;

/// Beyond it the scale, largest magnitude / 127, would be infinite in F16.
inline constexpr float kQ8Largest = 127.0f * 65504.0f;

/// REQUIRES: count is a multiple of kQ8Block.
constexpr size_t q8_0_bytes(size_t count) { return count / kQ8Block * kQ8BlockBytes; }

/// Rounds as ggml's reference does: scale = largest magnitude / 127, quotients to the nearest
/// integer, halves away from zero. REQUIRES: numbers up to ±kQ8Largest.
void quantize_q8_0(const float* numbers, size_t count, std::byte* blocks);
void dequantize_q8_0(const std::byte* blocks, size_t count, float* numbers);

}  // namespace danlu::weights::gguf
