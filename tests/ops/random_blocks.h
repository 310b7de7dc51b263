// tests/ops/random_blocks.h: weights in blocks, and the numbers that they stand for.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "base/dtype.h"
#include "ops/block_weight.h"

namespace danlu::test {

inline constexpr BlockType kBlockTypes[] = {BlockType::kQ8_0, BlockType::kQ4_0, BlockType::kQ4_K,
                                            BlockType::kQ6_K};

inline void put_scale(float scale, std::byte* to) {
  const uint16_t bits = float_to_f16(scale);
  std::memcpy(to, &bits, sizeof bits);
}

/// Blocks of random bits, all of which are codes and scales, but for the F16 scales: those of
/// around 0.01 of both signs.
inline std::vector<std::byte> random_blocks(BlockType type, int64_t rows, int64_t columns) {
  std::mt19937 random(static_cast<uint32_t>(rows * 131 + columns));
  const BlockTraits& traits = block_traits(type);
  std::vector<std::byte> blocks(static_cast<size_t>(rows) *
                                block_bytes(type, static_cast<size_t>(columns)));
  for (std::byte& byte : blocks) byte = static_cast<std::byte>(random());
  for (size_t at = 0; at < blocks.size(); at += traits.bytes) {
    const auto scale = [&] { return (static_cast<float>(random() % 200) - 100) / 10000; };
    put_scale(scale(), blocks.data() + at + (type == BlockType::kQ6_K ? 208 : 0));
    if (type == BlockType::kQ4_K) put_scale(scale(), blocks.data() + at + 2);
  }
  return blocks;
}

struct Matrix {
  ops::BlockWeight weight;
  at::Tensor dense_OI;  ///< f64, read from the blocks
};

inline Matrix random_matrix(BlockType type, int64_t rows, int64_t columns) {
  const std::vector<std::byte> blocks = random_blocks(type, rows, columns);
  const size_t row_bytes = block_bytes(type, static_cast<size_t>(columns));
  at::Tensor dense = at::empty({rows, columns}, at::TensorOptions(at::kFloat));
  dequantize(type, blocks.data(), static_cast<size_t>(rows * columns), dense.data_ptr<float>());
  return {ops::BlockWeight(type, rows, columns,
                           [&](int64_t row, int64_t count, std::byte* to) {
                             std::copy_n(blocks.begin() + row * static_cast<int64_t>(row_bytes),
                                         count * static_cast<int64_t>(row_bytes), to);
                           }),
          dense.to(at::kDouble)};
}

}  // namespace danlu::test
