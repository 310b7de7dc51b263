#include "weights/gguf/q8_0.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/dtype.h"

namespace danlu::weights::gguf {

void quantize_q8_0(const float* numbers, size_t count, std::byte* blocks) {
  for (; count > 0; count -= kQ8Block, numbers += kQ8Block, blocks += kQ8BlockBytes) {
    float largest = 0;
    for (size_t i = 0; i < kQ8Block; ++i) largest = std::max(largest, std::fabs(numbers[i]));
    const float scale = largest / 127.0f;
    // Below 2^-128 a scale has no finite inverse; F16 makes it 0 anyway.
    const float inverse = scale > 0x1p-128f ? 1.0f / scale : 0.0f;
    const uint16_t stored_scale = float_to_f16(scale);
    std::memcpy(blocks, &stored_scale, sizeof stored_scale);
    for (size_t i = 0; i < kQ8Block; ++i) {
      const auto quantised = static_cast<int8_t>(std::round(numbers[i] * inverse));
      std::memcpy(blocks + 2 + i, &quantised, 1);
    }
  }
}

void dequantize_q8_0(const std::byte* blocks, size_t count, float* numbers) {
  for (; count > 0; count -= kQ8Block, numbers += kQ8Block, blocks += kQ8BlockBytes) {
    uint16_t stored_scale = 0;
    std::memcpy(&stored_scale, blocks, sizeof stored_scale);
    const float scale = f16_to_float(stored_scale);
    for (size_t i = 0; i < kQ8Block; ++i) {
      int8_t quantised = 0;
      std::memcpy(&quantised, blocks + 2 + i, 1);
      numbers[i] = scale * static_cast<float>(quantised);
    }
  }
}

}  // namespace danlu::weights::gguf
