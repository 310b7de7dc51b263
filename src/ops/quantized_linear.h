// ops/quantized_linear.h: weights that stay quantised in memory, and products with them.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/number_blocks.h"

namespace danlu::ops {

namespace quantized_detail {
class Product;
}

/// A matrix [O, I] that stays quantised: BlockWeight, or Nf4Weight (ops/nf4.h).
class QuantizedWeight {
 public:
  QuantizedWeight() = default;
  QuantizedWeight(const QuantizedWeight&) = default;
  QuantizedWeight& operator=(const QuantizedWeight&) = delete;
  virtual ~QuantizedWeight() = default;
  virtual int64_t rows() const = 0;
  virtual int64_t columns() const = 0;
  virtual int64_t size_bytes() const = 0;
  /// Rows [first, first + count) as f32 [count, I].
  virtual at::Tensor dense_rows(int64_t first, int64_t count) const = 0;
  /// All of it, f32 [O, I].
  at::Tensor dense() const { return dense_rows(0, rows()); }
};

/// A matrix in blocks of its rows, on the CPU, for products without gradient. Immutable. Rows are
/// held 16 beside each other (quantized_rows_cpu.h), the last of them filled up; the numbers are
/// the blocks' own, and so is the memory, but for Q4_K, whose 6-bit scales take a byte each (2.7 %
/// more).
class BlockWeight final : public QuantizedWeight {
 public:
  /// Gives the blocks of `count` rows from `row` on; called from several threads.
  using ReadRows = std::function<void(int64_t row, int64_t count, std::byte* blocks)>;
  /// Errors: ModelError unless `columns` is a multiple of the type's block.
  BlockWeight(BlockType type, int64_t rows, int64_t columns, const ReadRows& read_rows);

  BlockType type() const { return type_; }
  int64_t rows() const override { return rows_; }
  int64_t columns() const override { return columns_; }
  int64_t size_bytes() const override;
  /// The first row (of those that lie together) with a scale that is infinite or NaN, if any.
  std::optional<int64_t> row_without_scale() const;
  /// Row `row` as f32 [I].
  void read_row(int64_t row, float* numbers) const;
  at::Tensor dense_rows(int64_t first, int64_t count) const override;

 private:
  friend class quantized_detail::Product;
  void pack_band(int64_t band, const std::byte* blocks, int64_t rows);
  BlockGroup group_of(int64_t row, int64_t group) const;
  int64_t num_bands() const;

  BlockType type_;
  int64_t rows_, columns_, groups_;
  at::Tensor codes_, scales_, supers_;
};
using QuantizedPtr = std::shared_ptr<const QuantizedWeight>;

/// Q8_0 or Q4_0 of a dense matrix of any floating type, with a multiple of 32 columns. Errors:
/// ModelError "[quantize] <name> …" for a number that the type has no scale for; for other columns.
QuantizedPtr quantized(BlockType type, const at::Tensor& weight_OI, const std::string& name);

/// Whether devices of this kind multiply quantised weights.
bool multiplies_quantized(c10::DeviceType type);

/// y = x W^T + b. NF4: nf4_linear (ops/nf4.h), with gradient. Blocks: the input is quantised too:
/// each 32 numbers of a row become whole multiples of a 127th of their largest, so that an output
/// is off by at most half of that times the sum of the magnitudes of the 32 weights, over all
/// groups. A row's result does not depend on the others.
///
/// Shapes  x [..., I]; bias_O [O] or undefined; result [..., O]. Dtypes  x and the bias f32, bf16
///         or f16; sums f32, rounded once to x's type. Without gradient but of NF4. Errors
///         ModelError naming shapes or dtypes; DeviceError unless x is on the CPU (NF4: anywhere).
at::Tensor quantized_linear(const at::Tensor& x, const QuantizedWeight& weight,
                            const at::Tensor& bias_O = {});

struct QuantizedFactor {
  const QuantizedWeight& weight;
  at::Tensor bias_O = {};
};
/// The same of several weights [O_i, I] of any types that read one input, which is quantised once;
/// one loop over the rows of all. Results [..., O_i].
std::vector<at::Tensor> quantized_linears(const at::Tensor& x,
                                          const std::vector<QuantizedFactor>& factors);

/// Rows `ids_N` [N] of a BlockWeight, in `type`.
at::Tensor quantized_embedding(const at::Tensor& ids_N, const QuantizedWeight& weight,
                               at::ScalarType type);

namespace oracle {
/// With the dense weight, the input as it is, in f64.
at::Tensor quantized_linear(const at::Tensor& x, const QuantizedWeight& weight,
                            const at::Tensor& bias_O = {});
}  // namespace oracle
}  // namespace danlu::ops
