#include "base/number_blocks.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/dtype.h"
#include "base/error.h"

namespace danlu {
namespace number_blocks_detail {

uint16_t f16_at(const std::byte* at) {
  uint16_t bits = 0;
  std::memcpy(&bits, at, sizeof bits);
  return bits;
}
unsigned byte_at(const std::byte* at, size_t index) { return std::to_integer<unsigned>(at[index]); }

BlockGroup q8_0_group(const std::byte* block) {
  BlockGroup group{.scale = f16_at(block), .part_scale = {1, 1}, .offset_scale = 0, .offset = 0};
  for (size_t i = 0; i < kBlockGroup; ++i)
    group.codes[i] = static_cast<uint8_t>(byte_at(block + 2, i) ^ 0x80u);
  return group;
}

BlockGroup q4_0_group(const std::byte* block) {
  BlockGroup group{.scale = f16_at(block), .part_scale = {1, 1}, .offset_scale = 0, .offset = 0};
  for (size_t i = 0; i < kBlockGroup / 2; ++i) {
    group.codes[i] = static_cast<uint8_t>(byte_at(block + 2, i) & 15u);
    group.codes[i + 16] = static_cast<uint8_t>(byte_at(block + 2, i) >> 4);
  }
  return group;
}

/// d, dmin, 12 bytes of 6-bit scales and offsets, 128 bytes of codes: two groups share 32 bytes.
BlockGroup q4_k_group(const std::byte* block, size_t index) {
  const std::byte *packed = block + 4, *codes = block + 16 + 32 * (index / 2);
  BlockGroup group{.scale = f16_at(block), .part_scale = {}, .offset_scale = f16_at(block + 2)};
  unsigned scale = 0, offset = 0;
  if (index < 4) {
    scale = byte_at(packed, index) & 63u;
    offset = byte_at(packed, index + 4) & 63u;
  } else {
    scale = (byte_at(packed, index + 4) & 15u) | ((byte_at(packed, index - 4) >> 6) << 4);
    offset = (byte_at(packed, index + 4) >> 4) | ((byte_at(packed, index) >> 6) << 4);
  }
  group.part_scale[0] = group.part_scale[1] = static_cast<int8_t>(scale);
  group.offset = static_cast<uint8_t>(offset);
  const unsigned shift = index % 2 == 0 ? 0 : 4;
  for (size_t i = 0; i < kBlockGroup; ++i)
    group.codes[i] = static_cast<uint8_t>((byte_at(codes, i) >> shift) & 15u);
  return group;
}

/// 128 bytes of low 4 bits, 64 of high 2 bits, 16 scales, d. Each half of 128 numbers is four
/// groups that share 64 of the low bytes and 32 of the high ones.
BlockGroup q6_k_group(const std::byte* block, size_t index) {
  const size_t half = index / 4, quarter = index % 4;
  const std::byte* low = block + 64 * half + 32 * (quarter % 2);
  const std::byte* high = block + 128 + 32 * half;
  BlockGroup group{.scale = f16_at(block + 208), .part_scale = {}, .offset_scale = 0, .offset = 0};
  std::memcpy(group.part_scale, block + 192 + 2 * index, 2);
  const unsigned low_shift = quarter < 2 ? 0 : 4, high_shift = static_cast<unsigned>(2 * quarter);
  for (size_t i = 0; i < kBlockGroup; ++i) {
    group.codes[i] = static_cast<uint8_t>(((byte_at(low, i) >> low_shift) & 15u) |
                                          (((byte_at(high, i) >> high_shift) & 3u) << 4));
  }
  return group;
}

void quantize_q8_0(const float* numbers, std::byte* block) {
  float largest = 0;
  for (size_t i = 0; i < kBlockGroup; ++i) largest = std::max(largest, std::fabs(numbers[i]));
  const float scale = largest / 127.0f;
  // Below 2^-128 a scale has no finite inverse; F16 makes it 0 anyway.
  const float inverse = scale > 0x1p-128f ? 1.0f / scale : 0.0f;
  const uint16_t stored_scale = float_to_f16(scale);
  std::memcpy(block, &stored_scale, sizeof stored_scale);
  for (size_t i = 0; i < kBlockGroup; ++i)
    block[2 + i] = static_cast<std::byte>(static_cast<int8_t>(std::round(numbers[i] * inverse)));
}

void quantize_q4_0(const float* numbers, std::byte* block) {
  float largest = 0;  // with its sign, which gets the code 0 that has no partner
  for (size_t i = 0; i < kBlockGroup; ++i)
    if (std::fabs(numbers[i]) > std::fabs(largest)) largest = numbers[i];
  const float scale = largest / -8.0f;
  const float inverse = std::fabs(scale) > 0x1p-128f ? 1.0f / scale : 0.0f;
  const uint16_t stored_scale = float_to_f16(scale);
  std::memcpy(block, &stored_scale, sizeof stored_scale);
  const auto code = [&](float number) {
    return std::min(15u, static_cast<unsigned>(number * inverse + 8.5f));
  };
  for (size_t i = 0; i < kBlockGroup / 2; ++i)
    block[2 + i] = static_cast<std::byte>(code(numbers[i]) | (code(numbers[i + 16]) << 4));
}

}  // namespace number_blocks_detail

int zero_code(BlockType type) {
  constexpr int kZeros[] = {128, 8, 0, 32};
  return kZeros[static_cast<size_t>(type)];
}

BlockGroup block_group(BlockType type, const std::byte* blocks, size_t index) {
  using namespace number_blocks_detail;
  const BlockTraits& traits = block_traits(type);
  const size_t groups = traits.numbers / kBlockGroup;
  const std::byte* block = blocks + index / groups * traits.bytes;
  switch (type) {
    case BlockType::kQ8_0:
      return q8_0_group(block);
    case BlockType::kQ4_0:
      return q4_0_group(block);
    case BlockType::kQ4_K:
      return q4_k_group(block, index % groups);
    case BlockType::kQ6_K:
      return q6_k_group(block, index % groups);
  }
  throw InternalError("[number_blocks] no such type of blocks");
}

void numbers_of(BlockType type, const BlockGroup& group, float* numbers) {
  const float scale = f16_to_float(group.scale);
  const float offset = f16_to_float(group.offset_scale) * static_cast<float>(group.offset);
  const int zero = zero_code(type);
  for (size_t i = 0; i < kBlockGroup; ++i) {
    const float part = scale * static_cast<float>(group.part_scale[i / 16]);
    numbers[i] = part * static_cast<float>(group.codes[i] - zero) - offset;
  }
}

void dequantize(BlockType type, const std::byte* blocks, size_t count, float* numbers) {
  for (size_t i = 0; i < count / kBlockGroup; ++i)
    numbers_of(type, block_group(type, blocks, i), numbers + i * kBlockGroup);
}

float largest_quantizable(BlockType type) {
  return (type == BlockType::kQ8_0 ? 127.0f : 8.0f) * 65504.0f;
}

void quantize(BlockType type, const float* numbers, size_t count, std::byte* blocks) {
  using namespace number_blocks_detail;
  if (type != BlockType::kQ8_0 && type != BlockType::kQ4_0)
    throw InternalError("[number_blocks] this type is read, not made");
  const size_t bytes = block_traits(type).bytes;
  for (size_t i = 0; i < count / kBlockGroup; ++i) {
    (type == BlockType::kQ8_0 ? quantize_q8_0 : quantize_q4_0)(numbers + i * kBlockGroup,
                                                               blocks + i * bytes);
  }
}

}  // namespace danlu
