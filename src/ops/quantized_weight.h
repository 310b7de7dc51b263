// ops/quantized_weight.h: weights that stay quantised in memory.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

namespace danlu::ops {

/// A matrix [O, I] that stays quantised: BlockWeight (ops/block_weight.h), or Nf4Weight
/// (ops/nf4.h).
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
using QuantizedPtr = std::shared_ptr<const QuantizedWeight>;

}  // namespace danlu::ops
