#include "ops/nf4.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>

#include "device/sent.h"
#include "ops/aten/table.h"

namespace danlu::ops::aten {
namespace {

at::Tensor numbers_on(at::ArrayRef<float> numbers, const at::Device& device) {
  return device::sent(at::tensor(numbers, at::kFloat), device);
}

/// The two numbers that each byte stands for, [256, 2].
at::Tensor numbers_of_bytes(const at::Device& device) {
  std::array<float, 512> numbers;
  for (size_t byte = 0; byte < 256; ++byte) {
    numbers[2 * byte] = kNf4Numbers[byte >> 4];
    numbers[2 * byte + 1] = kNf4Numbers[byte & 15];
  }
  return numbers_on({numbers.data(), numbers.size()}, device).view({256, 2});
}

/// Factors of `count` blocks from `block` on, which lie from `slot` on: f32 [count, 1].
at::Tensor factors_from(const Nf4Matrix& weight, int64_t slot, int64_t block, int64_t count) {
  const Nf4Layout& layout = *weight.layout;
  const auto floats = [&](int64_t at, int64_t number) {
    return weight.bytes.narrow(0, at, 4 * number).clone().view(at::kFloat);
  };
  if (!layout.form().doubly) return floats(layout.factors_at() + 4 * slot, count).view({-1, 1});
  const auto& numbers = nf4_factor_numbers();
  const at::Tensor map = numbers_on({numbers.data(), numbers.size()}, weight.bytes.device());
  const at::Tensor codes = weight.bytes.narrow(0, layout.factors_at() + slot, count).to(at::kInt);
  const at::Tensor group = at::arange(block, block + count, weight.bytes.options().dtype(at::kLong))
                               .div_(kNf4Group, "floor");
  const at::Tensor groups = floats(layout.groups_at(), layout.num_groups()).index_select(0, group);
  return (map.index_select(0, codes).mul_(groups).add_(floats(layout.offset_at(), 1)))
      .view({-1, 1});
}

/// Rows that are dense at a time.
int64_t dense_rows(const Nf4Layout& layout) {
  return std::max<int64_t>(256, kWideNumbers / std::max<int64_t>(1, layout.columns()));
}

}  // namespace

at::Tensor nf4_rows(const Nf4Matrix& weight, int64_t first, int64_t count, at::ScalarType type) {
  const Nf4Layout& layout = *weight.layout;
  const int64_t columns = layout.columns(), block = layout.form().block;
  // Where a block ends inside a row each number needs its own factor looked up.
  if (count == 0 || columns != layout.whole_columns() || columns % block != 0)
    return oracle::nf4_rows(weight, first, count, type);
  const at::Tensor pairs = numbers_of_bytes(weight.bytes.device());
  std::vector<at::Tensor> parts;
  int64_t rect_begin = 0;
  for (const Nf4Rect& rect : layout.rects()) {
    const int64_t begin = std::max(first, rect_begin),
                  end = std::min(first + count, rect_begin + rect.rows);
    rect_begin += rect.rows;
    if (begin >= end) continue;
    const Nf4Layout::Row row = layout.row(begin);
    const int64_t blocks = (end - begin) * columns / block, first_block = row.first_number / block;
    const at::Tensor codes =
        weight.bytes.narrow(0, begin * columns / 2, (end - begin) * columns / 2).to(at::kInt);
    at::Tensor numbers = pairs.index_select(0, codes).view({blocks, block});
    numbers.mul_(factors_from(weight, first_block + row.slot_less_block, first_block, blocks));
    parts.push_back(numbers.to(layout.form().type).to(type).view({end - begin, columns}));
  }
  return parts.size() == 1 ? parts.front() : at::cat(parts, 0);
}

at::Tensor nf4_product(const at::Tensor& x_NI, const Nf4Matrix& weight, const at::Tensor& bias_O) {
  const Backend& table = backend_of(x_NI.device().type());
  const int64_t rows = weight.layout->rows(), band = dense_rows(*weight.layout);
  const at::ScalarType type = x_NI.scalar_type();
  const at::Tensor y_NO = at::empty({x_NI.size(0), rows}, x_NI.options());
  for (int64_t row = 0; row < rows; row += band) {
    const int64_t count = std::min(band, rows - row);
    const at::Tensor bias = bias_O.defined() ? bias_O.narrow(0, row, count) : at::Tensor();
    const at::Tensor y = table.product(x_NI, table.nf4_rows(weight, row, count, type), bias, type);
    if (count == rows) return y;
    y_NO.narrow(1, row, count).copy_(y);
  }
  return y_NO;
}

at::Tensor nf4_input_grad(const at::Tensor& d_y_NO, const Nf4Matrix& weight) {
  const Backend& table = backend_of(d_y_NO.device().type());
  const int64_t rows = weight.layout->rows(), band = dense_rows(*weight.layout);
  const at::ScalarType type = d_y_NO.scalar_type();
  const auto grad = [&](int64_t row, int64_t count, at::ScalarType result) {
    return table.input_grad(d_y_NO.narrow(1, row, count), table.nf4_rows(weight, row, count, type),
                            result);
  };
  if (rows <= band) return grad(0, rows, type);
  at::Tensor sum_NI = grad(0, band, at::kFloat);
  for (int64_t row = band; row < rows; row += band)
    sum_NI.add_(grad(row, std::min(band, rows - row), at::kFloat));
  return sum_NI.to(type);
}

}  // namespace danlu::ops::aten
