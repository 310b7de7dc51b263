#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include "ops/kernels_cpu.h"

namespace danlu::ops::cpu {
at::Tensor rotary(const at::Tensor& given_NQD, const RotaryTable& table, bool inverse) {
  const at::Tensor x_NQD = given_NQD.contiguous();
  const at::Tensor y_NQD = at::empty(x_NQD.sizes(), x_NQD.options());
  const int64_t heads = x_NQD.size(1), half = x_NQD.size(2) / 2;
  const int64_t token_bytes = heads * 2 * half * x_NQD.element_size();
  at::parallel_for(0, x_NQD.size(0), 16, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      rotate(element_of(x_NQD), static_cast<size_t>(heads), static_cast<size_t>(half), inverse,
             static_cast<const char*>(x_NQD.data_ptr()) + n * token_bytes,
             table.cos_NE.data_ptr<float>() + n * half, table.sin_NE.data_ptr<float>() + n * half,
             static_cast<char*>(y_NQD.data_ptr()) + n * token_bytes);
    }
  });
  return y_NQD;
}

}  // namespace danlu::ops::cpu
