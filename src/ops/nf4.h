// ops/nf4.h: matrices in NF4 (base/nf4.h) in a device's memory, and products with them. Neither
// products nor their gradients make the whole matrix dense.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/nf4.h"
#include "ops/quantized_weight.h"

namespace danlu::ops {

/// A rectangle of a matrix.
struct Nf4Rect {
  int64_t row, rows, col, cols;
};

/// How a matrix in NF4 is made.
struct Nf4Form {
  int64_t block = kNf4Block;
  bool doubly = false;  ///< factors are quantised too
  /// What numbers are rounded to before they are used: the type that was quantised.
  at::ScalarType type = at::kBFloat16;
};

/// Which rectangles of a matrix one piece of memory holds, and where. Blocks are those of the whole
/// matrix: a factor is there for each block that a rectangle touches, so numbers do not depend on
/// how the matrix is cut; a block that a cut goes through has its factor on both sides.
///
/// The memory is bytes, in parts that begin at multiples of 64: codes of the numbers of all
/// rectangles, one below the other, two to a byte, the first in the upper half; factors, f32, or
/// bytes and then the groups' f32 factors of the whole matrix and the offset.
class Nf4Layout {
 public:
  /// REQUIRES: rectangles of one width and one first column, or all of whose columns begin at
  /// blocks, inside of a matrix of `whole_rows` x `whole_columns`.
  Nf4Layout(const Nf4Form& form, int64_t whole_rows, int64_t whole_columns,
            std::vector<Nf4Rect> rects);

  const Nf4Form& form() const { return form_; }
  const std::vector<Nf4Rect>& rects() const { return rects_; }
  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }
  int64_t whole_columns() const { return whole_columns_; }
  int64_t num_groups() const { return num_groups_; }  ///< 0 unless doubly
  int64_t num_slots() const { return num_slots_; }    ///< factors that are held
  int64_t codes_at() const { return 0; }
  int64_t factors_at() const { return factors_at_; }
  int64_t groups_at() const { return groups_at_; }
  int64_t offset_at() const { return groups_at_ + 4 * num_groups_; }
  int64_t size_bytes() const { return size_bytes_; }

  /// Where one row is: the number of the whole matrix that it begins with, and what a block's
  /// number differs by from that of its factor.
  struct Row {
    int64_t first_number, slot_less_block;
  };
  Row row(int64_t row) const;
  /// Calls run(first, count, slot, block) for what of columns [col, col + count) of the row each
  /// block has: the first of `count` columns, where its factor is, and its number in the whole.
  template <typename Run>
  void for_each_run(int64_t row, int64_t col, int64_t count, const Run& run) const {
    const Row here = this->row(row);
    for (int64_t at = col; at < col + count;) {
      const int64_t number = here.first_number + at, block = number / form_.block;
      const int64_t end = std::min(col + count, at + form_.block - number % form_.block);
      run(at, end - at, block + here.slot_less_block, block);
      at = end;
    }
  }

 private:
  bool is_whole_width() const { return columns_ == whole_columns_; }
  int64_t slots_of_row() const;
  int64_t slots_of(const Nf4Rect& rect) const;

  Nf4Form form_;
  int64_t whole_columns_;
  std::vector<Nf4Rect> rects_;
  std::vector<int64_t> first_slots_;  ///< of each rectangle
  int64_t rows_ = 0, columns_ = 0, num_groups_ = 0, num_slots_ = 0;
  int64_t factors_at_ = 0, groups_at_ = 0, size_bytes_ = 0;
};

/// What kernels get.
struct Nf4Matrix {
  std::shared_ptr<const Nf4Layout> layout;
  at::Tensor bytes;  ///< U8 [layout->size_bytes()], contiguous; at an address divisible by 4
};

class Nf4Weight final : public QuantizedWeight {
 public:
  explicit Nf4Weight(Nf4Matrix matrix) : matrix_(std::move(matrix)) {}
  const Nf4Matrix& matrix() const { return matrix_; }
  const Nf4Layout& layout() const { return *matrix_.layout; }
  const at::Tensor& bytes() const { return matrix_.bytes; }
  int64_t rows() const override { return layout().rows(); }
  int64_t columns() const override { return layout().columns(); }
  int64_t size_bytes() const override { return layout().size_bytes(); }
  at::Tensor dense_rows(int64_t first, int64_t count) const override;

 private:
  Nf4Matrix matrix_;
};
/// nullptr: it is of another kind.
const Nf4Weight* nf4_of(const QuantizedWeight& weight);

/// Quantises a matrix [O, I] of any floating type on the host, on all threads. REQUIRES: it is
/// finite.
Nf4Codes quantized_nf4(const at::Tensor& weight_OI, const Nf4Form& form);
/// Writes what the layout holds of the whole into bytes on the host.
void cut_nf4(const Nf4Codes& whole, const Nf4Layout& layout, uint8_t* bytes);

/// y = x W^T + b. On the CPU's own products with the tiles of a dense product, and then equal, bit
/// for bit, to ops::linear with the dense matrix, rounded to the form's type and then to x's; else
/// in ATen's operators, a band of rows at a time. Shapes  x [..., I]; bias_O [O] or undefined;
/// result [..., O]. Dtypes  x and the bias of one
///         floating type; sums f32 (f64 of f64). Grad  through x and the bias. Errors  ModelError
///         naming shapes.
at::Tensor nf4_linear(const at::Tensor& x, const Nf4Matrix& weight, const at::Tensor& bias_O = {});

/// Rows [first, first + count) [count, I] in `type`, by way of the form's.
at::Tensor nf4_rows(const Nf4Matrix& weight, int64_t first, int64_t count, at::ScalarType type);

namespace oracle {
/// The same in ATen's operators.
at::Tensor nf4_rows(const Nf4Matrix& weight, int64_t first, int64_t count, at::ScalarType type);
}  // namespace oracle
}  // namespace danlu::ops
