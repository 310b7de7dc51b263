#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <vector>

#include "device/parallel.h"
#include "ops/backend.h"
#include "ops/kernels_cpu.h"

namespace danlu::ops::cpu {

/// Blocks of rows by themselves, then their sums in order: ATen cuts columns by the number of
/// threads, and adds those that fill no vector in another order.
at::Tensor column_sums(const at::Tensor& given_NO) {
  if (!is_element(given_NO)) return composite_backend().column_sums(given_NO);
  constexpr int64_t kBlock = 64;
  const at::Tensor x_NO = given_NO.contiguous();
  const int64_t rows = x_NO.size(0), columns = x_NO.size(1), blocks = (rows + kBlock - 1) / kBlock;
  const auto options = x_NO.options().dtype(at::kFloat);
  const at::Tensor partial_BO = at::zeros({blocks, columns}, options);
  device::parallel_for(0, blocks, 1, [&](int64_t begin, int64_t end) {
    std::vector<float> row(static_cast<size_t>(columns));
    for (int64_t n = begin * kBlock; n < std::min(rows, end * kBlock); ++n) {
      widen(element_of(x_NO), 1, row.size(),
            static_cast<const char*>(x_NO.data_ptr()) + n * columns * x_NO.element_size(),
            row.size(), row.data(), row.size());
      float* const sums = partial_BO.data_ptr<float>() + n / kBlock * columns;
      for (size_t j = 0; j < row.size(); ++j) sums[j] += row[j];
    }
  });
  const at::Tensor sums_O = at::zeros({columns}, options);
  float* const sums = sums_O.data_ptr<float>();
  const float* partial = partial_BO.data_ptr<float>();
  for (int64_t block = 0; block < blocks; ++block, partial += columns) {
    for (int64_t j = 0; j < columns; ++j) sums[j] += partial[j];
  }
  return sums_O;
}

}  // namespace danlu::ops::cpu
