// Products with matrices in NF4 on the CPU: the tiles of dense products (gemm_cpu.h), decoded as
// they are packed.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <cstring>

#include "device/parallel.h"
#include "ops/gemm_cpu.h"
#include "ops/kernels_cpu.h"
#include "ops/nf4.h"
#include "ops/nf4_rows_cpu.h"
#include "ops/products_cpu.h"
#include "ops/scratch_cpu.h"
#include "ops/unsigned_of.h"

namespace danlu::ops::cpu {
namespace {

Element nf4_element(at::ScalarType type) {
  if (type == at::kFloat) return Element::kF32;
  return type == at::kBFloat16 ? Element::kBF16 : Element::kF16;
}

/// A matrix's memory, without the checks of a tensor.
class Nf4Reader {
 public:
  Nf4Reader(const Nf4Matrix& weight, at::ScalarType then)
      : layout_(*weight.layout),
        bytes_(weight.bytes.data_ptr<uint8_t>()),
        rounding_{nf4_element(layout_.form().type), nf4_element(then)},
        map_(nf4_factor_numbers().data()) {
    if (layout_.form().doubly) std::memcpy(&offset_, bytes_ + layout_.offset_at(), 4);
  }
  const Nf4Layout& layout() const { return layout_; }
  /// Columns [col, col + count) of a row.
  void read(int64_t row, int64_t col, int64_t count, float* to) const {
    const int64_t begin = row * layout_.columns();
    layout_.for_each_run(row, col, count,
                         [&](int64_t first, int64_t size, int64_t slot, int64_t block) {
                           decode_nf4(rounding_, bytes_, begin + first, size, factor(slot, block),
                                      to + (first - col));
                         });
  }

 private:
  float factor(int64_t slot, int64_t block) const {
    const uint8_t* const at = bytes_ + layout_.factors_at();
    float number;
    if (!layout_.form().doubly) {
      std::memcpy(&number, at + 4 * slot, 4);
      return number;
    }
    std::memcpy(&number, bytes_ + layout_.groups_at() + 4 * (block / kNf4Group), 4);
    return map_[at[slot]] * number + offset_;
  }

  const Nf4Layout& layout_;
  const uint8_t* bytes_;
  Nf4Rounding rounding_;
  const float* map_;
  float offset_ = 0;
};

/// The matrix as a right factor. across_rows: k goes along its columns, as in a forward pass; else
/// over its rows, as for the gradient of the input.
class Nf4Tiles final : public RightTiles {
 public:
  Nf4Tiles(const Nf4Reader& reader, bool across_rows, bool as_bf16)
      : reader_(reader), across_rows_(across_rows), as_bf16_(as_bf16) {}

  Factor tile(size_t k, size_t k_count, size_t column, size_t count) const override {
    static thread_local ScratchMemory memory, narrow_memory;
    const size_t rows = across_rows_ ? count : k_count, width = across_rows_ ? k_count : count;
    const size_t row = across_rows_ ? column : k, col = across_rows_ ? k : column;
    float* const wide = memory.floats(rows * width);
    for (size_t i = 0; i < rows; ++i)
      reader_.read(static_cast<int64_t>(row + i), static_cast<int64_t>(col),
                   static_cast<int64_t>(width), wide + i * width);
    const void* data = wide;
    if (as_bf16_) {
      char* const narrowed = narrow_memory.of(rows * width * 2);
      narrow(Element::kBF16, 1, rows * width, wide, rows * width, narrowed, rows * width);
      data = narrowed;
    }
    return {as_bf16_ ? Element::kBF16 : Element::kF32, data, across_rows_ ? 1 : width,
            across_rows_ ? width : 1};
  }

 private:
  const Nf4Reader& reader_;
  bool across_rows_, as_bf16_;
};

at::Tensor multiply_nf4(const at::Tensor& left, const Nf4Matrix& weight, bool across_rows,
                        const at::Tensor& bias) {
  const Nf4Reader reader(weight, left.scalar_type());
  const at::Tensor rows = left.stride(1) == 1 || left.stride(0) == 1 ? left : left.contiguous();
  const bool as_bf16 = rows.scalar_type() == at::kBFloat16;
  const Nf4Tiles tiles(reader, across_rows, as_bf16);
  const Nf4Layout& layout = reader.layout();
  const bool rounds = left.scalar_type() != at::kHalf || rounds_f16();
  const at::Tensor to = at::empty({rows.size(0), across_rows ? layout.rows() : layout.columns()},
                                  left.options().dtype(rounds ? left.scalar_type() : at::kFloat));
  const at::Tensor whole_bias =
      bias.defined() ? bias.to(to.scalar_type()).contiguous() : at::Tensor();
  MatrixProduct product{
      unsigned_of(to.size(0)),
      unsigned_of(to.size(1)),
      unsigned_of(rows.size(1)),
      {element_of(rows), rows.data_ptr(), unsigned_of(rows.stride(1)), unsigned_of(rows.stride(0))},
      {as_bf16 ? Element::kBF16 : Element::kF32, nullptr, 1, 1},
      element_of(to),
      to.data_ptr(),
      unsigned_of(to.stride(0)),
      bias.defined() ? whole_bias.data_ptr() : nullptr,
      /*add=*/false,
      &tiles};
  multiply(product);
  return to.to(left.scalar_type());
}

}  // namespace

at::Tensor nf4_product(const at::Tensor& x_NI, const Nf4Matrix& weight, const at::Tensor& bias_O) {
  return multiply_nf4(x_NI, weight, /*across_rows=*/true, bias_O);
}

at::Tensor nf4_input_grad(const at::Tensor& d_y_NO, const Nf4Matrix& weight) {
  return multiply_nf4(d_y_NO, weight, /*across_rows=*/false, {});
}

at::Tensor nf4_rows(const Nf4Matrix& weight, int64_t first, int64_t count, at::ScalarType type) {
  const Nf4Reader reader(weight, type);
  const int64_t columns = reader.layout().columns();
  const at::Tensor result = at::empty({count, columns}, at::TensorOptions(at::kFloat));
  float* const to = result.data_ptr<float>();
  device::parallel_for(0, count, 16, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      reader.read(first + row, 0, columns, to + row * columns);
  });
  return result.to(type);
}

}  // namespace danlu::ops::cpu
