#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cmath>

#include "device/parallel.h"
#include "ops/empty_cpu.h"
#include "ops/kernels_cpu.h"

namespace danlu::ops::cpu {

/// One number after the other: ATen rounds those that are left over of a thread's vectors otherwise
/// than the others, so that its number of threads shows.
RotaryTable rotary_table(const at::Tensor& positions_N, const at::Tensor& inv_freq,
                         double attention_factor) {
  const at::Tensor positions = positions_N.contiguous();
  const at::Tensor frequencies = inv_freq.to(at::kFloat).contiguous();
  const int64_t width = frequencies.size(-1), row = frequencies.dim() == 2 ? width : 0;
  const RotaryTable table{empty_cpu({positions.numel(), width}, at::kFloat),
                          empty_cpu({positions.numel(), width}, at::kFloat)};
  const auto* const position = positions.data_ptr<int64_t>();
  const auto* const frequency = frequencies.data_ptr<float>();
  float *const cos = table.cos_NE.data_ptr<float>(), *const sin = table.sin_NE.data_ptr<float>();
  const auto factor = static_cast<float>(attention_factor);
  const int64_t grain = 1024 / std::max<int64_t>(1, width) + 1;
  device::parallel_for(0, positions.numel(), grain, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      for (int64_t e = 0; e < width; ++e) {
        const float angle = static_cast<float>(position[n]) * frequency[n * row + e];
        cos[n * width + e] = std::cos(angle) * factor;
        sin[n * width + e] = std::sin(angle) * factor;
      }
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
