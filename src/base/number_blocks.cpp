#include "base/number_blocks.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/dtype.h"
#include "base/error.h"

namespace danlu {
namespace {

uint16_t f16_at(const std::byte* at) {
  uint16_t bits = 0;
  std::memcpy(&bits, at, sizeof bits);
  return bits;
}
unsigned byte_at(const std::byte* at, size_t index) { return std::to_integer<unsigned>(at[index]); }

BlockGroup q8_0_group(const std::byte* block) {
  BlockGroup group{.scale = f16_at(block), .part_scale = {1, 1}, .offset_scale = 0, .offset = {}};
  for (size_t i = 0; i < kBlockGroup; ++i)
    group.codes[i] = static_cast<uint8_t>(byte_at(block + 2, i) ^ 0x80u);
  return group;
}

/// Codes of 4 bits, the second 16 in the upper halves; `upper`, if any, are 32 more bits.
void put_nibbles(const std::byte* from, const std::byte* upper, BlockGroup& group) {
  uint32_t bits = 0;
  if (upper) std::memcpy(&bits, upper, sizeof bits);
  for (size_t i = 0; i < kBlockGroup; ++i) {
    const unsigned nibble = (byte_at(from, i % 16) >> (i < 16 ? 0 : 4)) & 15u;
    group.codes[i] = static_cast<uint8_t>(nibble | ((bits >> i) & 1u) << 4);
  }
}

BlockGroup q4_0_group(const std::byte* block) {
  BlockGroup group{.scale = f16_at(block), .part_scale = {1, 1}, .offset_scale = 0, .offset = {}};
  put_nibbles(block + 2, nullptr, group);
  return group;
}

BlockGroup q5_0_group(const std::byte* block) {
  BlockGroup group{.scale = f16_at(block), .part_scale = {1, 1}, .offset_scale = 0, .offset = {}};
  put_nibbles(block + 6, block + 2, group);
  return group;
}

/// Q4_1 and Q5_1: the minimum is an offset that is taken away with the other sign.
BlockGroup group_with_minimum(const std::byte* block, bool has_fifth_bits) {
  BlockGroup group{.scale = f16_at(block),
                   .part_scale = {1, 1},
                   .offset_scale = static_cast<uint16_t>(f16_at(block + 2) ^ 0x8000u),
                   .offset = {1, 1}};
  put_nibbles(block + (has_fifth_bits ? 8 : 4), has_fifth_bits ? block + 4 : nullptr, group);
  return group;
}

/// 16 bytes of 4-bit scales and offsets, 64 of codes, d, dmin. Each half of 128 numbers is four
/// groups that share 32 bytes of codes.
BlockGroup q2_k_group(const std::byte* block, size_t index) {
  const std::byte* codes = block + 16 + 32 * (index / 4);
  BlockGroup group{.scale = f16_at(block + 80),
                   .part_scale = {},
                   .offset_scale = f16_at(block + 82),
                   .offset = {}};
  for (size_t part = 0; part < 2; ++part) {
    const unsigned packed = byte_at(block, 2 * index + part);
    group.part_scale[part] = static_cast<int8_t>(packed & 15u);
    group.offset[part] = static_cast<uint8_t>(packed >> 4);
  }
  for (size_t i = 0; i < kBlockGroup; ++i)
    group.codes[i] = static_cast<uint8_t>((byte_at(codes, i) >> (2 * (index % 4))) & 3u);
  return group;
}

/// 32 bytes of third bits, a bit for each group, 64 of lower bits as in Q2_K, 12 bytes with sixteen
/// 6-bit scales, d.
BlockGroup q3_k_group(const std::byte* block, size_t index) {
  const std::byte *low = block + 32 + 32 * (index / 4), *packed = block + 96;
  BlockGroup group{.scale = f16_at(block + 108), .part_scale = {}, .offset_scale = 0, .offset = {}};
  for (size_t part = 0; part < 2; ++part) {
    const size_t i = 2 * index + part;
    const unsigned lower = (byte_at(packed, i % 8) >> (i < 8 ? 0 : 4)) & 15u;
    const unsigned upper = (byte_at(packed, 8 + i % 4) >> (2 * (i / 4))) & 3u;
    group.part_scale[part] = static_cast<int8_t>(static_cast<int>(lower | upper << 4) - 32);
  }
  for (size_t i = 0; i < kBlockGroup; ++i) {
    const unsigned third = (byte_at(block, i) >> index) & 1u;
    group.codes[i] =
        static_cast<uint8_t>(((byte_at(low, i) >> (2 * (index % 4))) & 3u) | third << 2);
  }
  return group;
}

/// Q4_K and Q5_K: d, dmin, 12 bytes of 6-bit scales and offsets, of Q5_K 32 bytes of fifth bits, a
/// bit for each group, 128 bytes of codes: two groups share 32 bytes.
BlockGroup q4_k_group(const std::byte* block, size_t index, const std::byte* fifth = nullptr) {
  const std::byte *packed = block + 4, *codes = block + (fifth ? 48 : 16) + 32 * (index / 2);
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
  group.offset[0] = group.offset[1] = static_cast<uint8_t>(offset);
  const unsigned shift = index % 2 == 0 ? 0 : 4;
  for (size_t i = 0; i < kBlockGroup; ++i) {
    const unsigned upper = fifth ? (byte_at(fifth, i) >> index) & 1u : 0u;
    group.codes[i] = static_cast<uint8_t>(((byte_at(codes, i) >> shift) & 15u) | upper << 4);
  }
  return group;
}

/// 128 bytes of low 4 bits, 64 of high 2 bits, 16 scales, d. Each half of 128 numbers is four
/// groups that share 64 of the low bytes and 32 of the high ones.
BlockGroup q6_k_group(const std::byte* block, size_t index) {
  const size_t half = index / 4, quarter = index % 4;
  const std::byte* low = block + 64 * half + 32 * (quarter % 2);
  const std::byte* high = block + 128 + 32 * half;
  BlockGroup group{.scale = f16_at(block + 208), .part_scale = {}, .offset_scale = 0, .offset = {}};
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

}  // namespace

int zero_code(BlockType type) {
  constexpr int kZeros[] = {128, 8, 0, 32, 0, 16, 0, 0, 4, 0};
  return kZeros[static_cast<size_t>(type)];
}

BlockGroup block_group(BlockType type, const std::byte* blocks, size_t index) {
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
    case BlockType::kQ4_1:
      return group_with_minimum(block, /*has_fifth_bits=*/false);
    case BlockType::kQ5_0:
      return q5_0_group(block);
    case BlockType::kQ5_1:
      return group_with_minimum(block, /*has_fifth_bits=*/true);
    case BlockType::kQ2_K:
      return q2_k_group(block, index % groups);
    case BlockType::kQ3_K:
      return q3_k_group(block, index % groups);
    case BlockType::kQ5_K:
      return q4_k_group(block, index % groups, block + 16);
  }
  throw InternalError("[number_blocks] no such type of blocks");
}

void numbers_of(BlockType type, const BlockGroup& group, float* numbers) {
  const float scale = f16_to_float(group.scale);
  const float offset_scale = f16_to_float(group.offset_scale);
  const int zero = zero_code(type);
  for (size_t part = 0; part < 2; ++part) {
    const float factor = scale * static_cast<float>(group.part_scale[part]);
    const float offset = offset_scale * static_cast<float>(group.offset[part]);
    for (size_t i = 16 * part; i < 16 * part + 16; ++i)
      numbers[i] = factor * static_cast<float>(group.codes[i] - zero) - offset;
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
  if (type != BlockType::kQ8_0 && type != BlockType::kQ4_0)
    throw InternalError("[number_blocks] this type is read, not made");
  const size_t bytes = block_traits(type).bytes;
  for (size_t i = 0; i < count / kBlockGroup; ++i) {
    (type == BlockType::kQ8_0 ? quantize_q8_0 : quantize_q4_0)(numbers + i * kBlockGroup,
                                                               blocks + i * bytes);
  }
}

}  // namespace danlu
