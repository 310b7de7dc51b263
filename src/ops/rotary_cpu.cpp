#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>

#include <cmath>

#include "device/parallel.h"
#include "ops/empty_cpu.h"
#include "ops/kernels_cpu.h"

namespace danlu::ops::cpu {

/// One number after the other: ATen rounds those that are left over of a thread's vectors otherwise
/// than the others, so that its number of threads shows.
RotaryTable rotary_table(const at::Tensor& positions_N, const at::Tensor& inv_freq,
                         double attention_factor) {
  const at::Tensor angle_NE =
      (positions_N.to(at::kFloat).unsqueeze(1) * inv_freq.to(at::kFloat)).contiguous();
  const RotaryTable table{at::empty_like(angle_NE), at::empty_like(angle_NE)};
  const float* const angle = angle_NE.data_ptr<float>();
  float *const cos = table.cos_NE.data_ptr<float>(), *const sin = table.sin_NE.data_ptr<float>();
  const auto factor = static_cast<float>(attention_factor);
  device::parallel_for(0, angle_NE.numel(), /*grain_size=*/1024, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      cos[i] = std::cos(angle[i]) * factor;
      sin[i] = std::sin(angle[i]) * factor;
    }
  });
  return table;
}

at::Tensor rotary(const at::Tensor& given_NQD, const RotaryTable& table, bool inverse) {
  const at::Tensor x_NQD = given_NQD.contiguous();
  const at::Tensor y_NQD = empty_cpu(x_NQD.sizes(), x_NQD.scalar_type());
  const int64_t heads = x_NQD.size(1), half = x_NQD.size(2) / 2;
  const int64_t token_bytes = heads * 2 * half * x_NQD.element_size();
  device::parallel_for(0, x_NQD.size(0), 16, [&](int64_t begin, int64_t end) {
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
