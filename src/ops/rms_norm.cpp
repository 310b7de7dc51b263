#include "ops/rms_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/rsqrt.h>

#include "device/dtype.h"
#include "ops/check.h"
#include "ops/fused_cpu.h"
#include "ops/kernels.h"

namespace danlu::ops {
namespace rms_norm_detail {

void check(const at::Tensor& x, const at::Tensor& weight_D) {
  require(weight_D.dim() == 1 && weight_D.size(0) == x.size(-1), "rms_norm", "weight ",
          weight_D.sizes(), " must be [D] with D = ", x.size(-1), ", the last dim of x ",
          x.sizes());
}

}  // namespace rms_norm_detail

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight_D, double eps) {
  rms_norm_detail::check(x, weight_D);
  if (fused_on_cpu(x) && x.scalar_type() == weight_D.scalar_type())
    return cpu::rms_norm(x, weight_D, eps);
  return oracle::rms_norm(x, weight_D, eps);
}

at::Tensor oracle::rms_norm(const at::Tensor& x, const at::Tensor& weight_D, double eps) {
  rms_norm_detail::check(x, weight_D);
  const at::Tensor wide = x.to(device::wide_type(x.scalar_type()));
  const at::Tensor rstd = at::rsqrt(at::mean(wide.square(), -1, true) + eps);
  return (wide * rstd).to(x.scalar_type()) * weight_D;
}

}  // namespace danlu::ops
