// base/number_blocks.h: blocks of quantised numbers as GGUF files hold them: 32 or 256 numbers with
// their scales.
//
// Source of the layouts: llama.cpp, ggml/src/ggml-common.h; little-endian.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace danlu {

enum class BlockType : uint8_t {
  kQ8_0,  ///< 32 numbers: an F16 scale, 32 signed bytes
  kQ4_0,  ///< 32: an F16 scale, 32 codes of 4 bits less 8; the second 16 in the upper halves
  kQ4_K,  ///< 256 as 8 of 32: F16 scales of 6-bit scales and of 6-bit offsets, codes of 4 bits
  kQ6_K,  ///< 256 as 16 of 16: signed 8-bit scales, codes of 6 bits less 32, an F16 scale of all
  kQ4_1,  ///< 32: an F16 scale, an F16 minimum, codes of 4 bits
  kQ5_0,  ///< 32: an F16 scale, the codes' fifth bits, their lower 4; less 16
  kQ5_1,  ///< 32: an F16 scale, an F16 minimum, fifth bits, lower 4
  kQ2_K,  ///< 256 as 16 of 16: 4-bit scales and offsets, codes of 2 bits, F16 scales of both
  kQ3_K,  ///< 256 as 16 of 16: third bits, lower 2, 6-bit scales less 32, an F16 scale; less 4
  kQ5_K,  ///< as kQ4_K with fifth bits
};

struct BlockTraits {
  std::string_view name;  ///< "Q4_K"
  size_t numbers, bytes;  ///< of a block
};
/// Indexed by BlockType.
inline constexpr BlockTraits kBlockTraits[] = {
    {"Q8_0", 32, 34}, {"Q4_0", 32, 18}, {"Q4_K", 256, 144}, {"Q6_K", 256, 210}, {"Q4_1", 32, 20},
    {"Q5_0", 32, 22}, {"Q5_1", 32, 24}, {"Q2_K", 256, 84},  {"Q3_K", 256, 110}, {"Q5_K", 256, 176}};
constexpr const BlockTraits& block_traits(BlockType type) {
  return kBlockTraits[static_cast<size_t>(type)];
}

/// Whether a model multiplies such blocks as they are; the numbers of others are widened when they
/// are read.
constexpr bool is_multiplied(BlockType type) { return type <= BlockType::kQ6_K; }

/// REQUIRES: `count` is a multiple of the block.
inline size_t block_bytes(BlockType type, size_t count) {
  return count / block_traits(type).numbers * block_traits(type).bytes;
}

/// All types hold numbers in groups of this many whose codes are of one kind.
inline constexpr size_t kBlockGroup = 32;

/// What a group's numbers are made of: number i is
///   scale * part_scale[i / 16] * (code[i] - zero) - offset_scale * offset[i / 16].
struct BlockGroup {
  uint8_t codes[kBlockGroup] = {};  ///< Q8_0: its signed bytes + 128
  uint16_t scale = 0;               ///< F16
  int8_t part_scale[2] = {};        ///< 1 of types whose blocks are groups
  uint16_t offset_scale = 0;        ///< F16; 0 of types without offsets or a minimum
  uint8_t offset[2] = {};
};
/// What is taken from codes.
int zero_code(BlockType type);
/// Group `index` (of 32 numbers each) of a row of blocks.
BlockGroup block_group(BlockType type, const std::byte* blocks, size_t index);
/// Writes the numbers of a group, rounded as by the reference: products in f32, from the left.
void numbers_of(BlockType type, const BlockGroup& group, float* numbers);

/// REQUIRES: `count` is a multiple of the block.
void dequantize(BlockType type, const std::byte* blocks, size_t count, float* numbers);

/// Beyond it a scale, largest magnitude / 127 or / 8, would be infinite in F16.
float largest_quantizable(BlockType type);

/// Q8_0: scale = largest magnitude / 127, quotients to the nearest integer, halves away from zero.
/// Q4_0: scale = the number of the largest magnitude / -8, quotients to the nearest of -8 … 7. The
/// blocks are those that ggml's reference makes. REQUIRES: one of these two; a multiple of 32
/// numbers, up to ±largest_quantizable.
void quantize(BlockType type, const float* numbers, size_t count, std::byte* blocks);

}  // namespace danlu
