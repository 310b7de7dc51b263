// weights/lora/low_rank_update.h: a weight matrix with a LoRA adapter merged into it, any rectangle
// of it computed when it is read.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "weights/tensor_source.h"

namespace danlu::weights {

/// Which tensors make a merged matrix. With a = A [r, in] and b = B [out, r]:
///   [out, in] weights:  W + scale · B·A
///   `transposed` ones:  W + scale · (B·A)ᵀ, for weights [in, out]: embeddings, Conv1D
struct LowRankParts {
  std::string weight;  ///< in the base model
  std::string a, b;    ///< in the adapter
  double scale = 1;
  bool transposed = false;
  /// DoRA's m [out] in the adapter; empty: none. Each row r of the sum S becomes m_r · S_r / ‖S_r‖;
  /// a row of zeros stays one. Not together with `transposed`.
  std::string magnitude = {};
};

/// Arithmetic is in f32 (f64 for f64 weights), in an order that depends on nothing but the element:
/// every way to read gives the same bits. One rounding, to `result`. Thread-safe.
class LowRankUpdate {
 public:
  /// REQUIRES: the tensors exist, are floating and of fitting shapes; `result` is floating.
  LowRankUpdate(std::shared_ptr<const TensorSource> base,
                std::shared_ptr<const TensorSource> adapter, LowRankParts parts, DType result);

  /// The merged matrix's `rect` as `result`; rows begin `out_stride` elements apart.
  /// Costs 2 · rows · r · cols operations; with DoRA the first read of a part of rows computes the
  /// whole matrix once. Memory: some megabytes, and A's columns in the rectangle.
  /// Errors: ModelError where a merged number is not finite.
  void read_rect(const Rect& rect, std::byte* out, int64_t out_stride) const;

 private:
  template <typename Real>
  void read_bands(const Rect& rect, std::byte* out, int64_t out_stride) const;
  template <typename Real>
  std::vector<Real> sum_of(const Rect& rect) const;
  template <typename Real>
  std::vector<Real> row_factors(const Rect& rect, const std::vector<Real>& sums) const;
  [[noreturn]] void refuse(double value) const;

  std::shared_ptr<const TensorSource> base_, adapter_;
  LowRankParts parts_;
  DType result_;
  bool is_f64_;  ///< the weight
  Rect matrix_;
  int64_t rank_;
  mutable std::once_flag factors_once_;
  mutable std::vector<double> factors_;  ///< DoRA: m / ‖S‖ of every row, if parts of rows are read
};

}  // namespace danlu::weights
