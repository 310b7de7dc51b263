#include "ops/rotary.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>

#include "device/dtype.h"
#include "ops/check.h"
#include "ops/fused_cpu.h"
#include "ops/kernels.h"

namespace danlu::ops {
namespace rotary_detail {

void check(const at::Tensor& x_NQD, const RotaryTable& table) {
  require(x_NQD.dim() == 3, "rotary", "x ", x_NQD.sizes(), " must be [N, heads, D]");
  const int64_t half = x_NQD.size(2) / 2;
  require(x_NQD.size(2) == 2 * half && table.cos_NE.size(0) == x_NQD.size(0) &&
              table.cos_NE.size(1) == half,
          "rotary", "x ", x_NQD.sizes(),
          " must be [N, heads, D] with even D and a table [N, D/2]; got a table ",
          table.cos_NE.sizes());
}

}  // namespace rotary_detail

RotaryTable rotary_table(const at::Tensor& positions_N, const at::Tensor& inv_freq,
                         double attention_factor) {
  const at::Tensor angle_NE = positions_N.to(at::kFloat).unsqueeze(1) * inv_freq;
  return {angle_NE.cos().mul_(attention_factor), angle_NE.sin().mul_(attention_factor)};
}

at::Tensor rotary(const at::Tensor& x_NQD, const RotaryTable& table) {
  rotary_detail::check(x_NQD, table);
  if (fused_on_cpu(x_NQD)) return cpu::rotary(x_NQD, table);
  return oracle::rotary(x_NQD, table);
}

at::Tensor oracle::rotary(const at::Tensor& x_NQD, const RotaryTable& table) {
  rotary_detail::check(x_NQD, table);
  const int64_t half = x_NQD.size(2) / 2;
  const at::Tensor x = x_NQD.to(device::wide_type(x_NQD.scalar_type()));
  const at::Tensor a = x.narrow(2, 0, half), b = x.narrow(2, half, half);
  const at::Tensor cos = table.cos_NE.unsqueeze(1), sin = table.sin_NE.unsqueeze(1);
  return at::cat({a * cos - b * sin, b * cos + a * sin}, 2).to(x_NQD.scalar_type());
}

}  // namespace danlu::ops
