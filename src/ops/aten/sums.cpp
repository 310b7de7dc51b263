#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linalg_vector_norm.h>

#include <cmath>
#include <limits>

#include "device/dtype.h"
#include "ops/aten/table.h"

namespace danlu::ops::aten {

void add_rows(const at::Tensor& sum_NH, const at::Tensor& index_n, const at::Tensor& rows_nH) {
  // Accumulating, which sorts: equal indices are one thread's, first to last.
  at::Tensor(sum_NH).index_put_({index_n}, rows_nH.to(sum_NH.scalar_type()), /*accumulate=*/true);
}

std::vector<double> sums_of_squares(const at::Tensor& values, const std::vector<Chunk>& chunks) {
  if (chunks.empty()) return {};
  std::vector<at::Tensor> norms;
  for (size_t i = 0; i < chunks.size();) {
    // Neighbours of one size are the rows of a matrix: one kernel.
    const int64_t begin = chunks[i].at.begin, size = chunks[i].at.size();
    int64_t rows = 1;
    for (++i; i < chunks.size() && chunks[i].at.size() == size &&
              chunks[i].at.begin == begin + rows * size;
         ++i)
      ++rows;
    norms.push_back(at::linalg_vector_norm(values.narrow(0, begin, rows * size).view({rows, size}),
                                           2, at::IntArrayRef{1}, false, at::kDouble));
  }
  const at::Tensor sums = at::cat(norms).square().cpu();
  return {sums.data_ptr<double>(), sums.data_ptr<double>() + sums.numel()};
}

at::Tensor likeliest(const at::Tensor& logits_RV) { return logits_RV.argmax(1); }

bool all_finite(const at::Tensor& x) {
  if (x.numel() == 0) return true;
  const double none = std::numeric_limits<double>::infinity();
  return std::isfinite(
      at::linalg_vector_norm(x, none, {}, false, device::wide_type(x.scalar_type()))
          .item<double>());
}

}  // namespace danlu::ops::aten
