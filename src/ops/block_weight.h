// ops/block_weight.h: matrices in blocks of 8, 6 or 4 bits, as products read them.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/number_blocks.h"
#include "ops/quantized_weight.h"

namespace danlu::ops {

/// Rows of a weight that lie together.
inline constexpr int64_t kBandRows = 16;
/// Bytes of a group of a band, and of 8 groups' supers.
constexpr size_t band_code_bytes(BlockType type) {
  return type == BlockType::kQ8_0 ? 512 : type == BlockType::kQ6_K ? 384 : 256;
}
inline constexpr size_t kBandScaleBytes = 32;
constexpr size_t band_super_bytes(BlockType type) {
  return type == BlockType::kQ4_K ? 64 : type == BlockType::kQ6_K ? 32 : 0;
}

/// A matrix in blocks of its rows, for products without gradient. Immutable. 16 rows are a band,
/// the last of them filled up; a band holds one group of 32 columns after the other. The numbers
/// are the blocks' own, and so is the memory, but for Q4_K, whose 6-bit scales take a byte each
/// (2.7 % more).
///
/// What the fields hold of a group in a band:
///   codes   4 bytes of each row after the other are a chunk of 64. Q8_0: chunk c holds columns
///           4c to 4c + 3 (codes as BlockGroup). 4-bit codes: chunk c holds columns 4c on in the
///           lower halves of its bytes, 16 + 4c on in the upper. Q6_K: then two chunks whose byte
///           holds the upper two bits of chunks c, 2 + c, 4 + c and 6 + c of 8, from the lowest
///           bits on.
///   scales  16 F16 of Q8_0 and Q4_0; 16 + 16 bytes: part_scale and offset of Q4_K, both
///           part_scales of Q6_K
/// and of 8 groups of Q4_K and Q6_K in the supers: 16 F16 scale, of Q4_K 16 offset_scale as well.
class BlockWeight final : public QuantizedWeight {
 public:
  /// Gives the blocks of `count` rows from `row` on; called from several threads.
  using ReadRows = std::function<void(int64_t row, int64_t count, std::byte* blocks)>;
  /// On the host. Errors: ModelError unless `columns` is a multiple of the type's block.
  BlockWeight(BlockType type, int64_t rows, int64_t columns, const ReadRows& read_rows);

  BlockType type() const { return type_; }
  int64_t rows() const override { return rows_; }
  int64_t columns() const override { return columns_; }
  int64_t size_bytes() const override;
  /// The first row (of those that lie together) with a scale that is infinite or NaN, if any.
  std::optional<int64_t> row_without_scale() const;
  /// Row `row` as f32 [I]. REQUIRES: it is on the host.
  void read_row(int64_t row, float* numbers) const;
  /// On the host, wherever the blocks are.
  at::Tensor dense_rows(int64_t first, int64_t count) const override;

  /// The same matrix on a device.
  std::shared_ptr<const BlockWeight> to(c10::Device device) const;
  int64_t num_bands() const { return (rows_ + kBandRows - 1) / kBandRows; }
  int64_t num_groups() const { return groups_; }
  /// U8, one band after the other.
  const at::Tensor& codes() const { return codes_; }
  const at::Tensor& scales() const { return scales_; }
  const at::Tensor& supers() const { return supers_; }

 private:
  void pack_band(int64_t band, const std::byte* blocks, int64_t rows);
  BlockGroup group_of(int64_t row, int64_t group) const;

  BlockType type_;
  int64_t rows_, columns_, groups_;
  at::Tensor codes_, scales_, supers_;
};

struct BlockFactor {
  const BlockWeight& weight;
  at::Tensor bias_O = {};
};

/// Q8_0 or Q4_0 of a dense matrix of any floating type, with a multiple of 32 columns, on its
/// device. Errors: ModelError "[quantize] <name> …" for a number that the type has no scale for;
/// for other columns.
QuantizedPtr quantized(BlockType type, const at::Tensor& weight_OI, const std::string& name);

}  // namespace danlu::ops
