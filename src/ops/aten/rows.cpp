#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/silu_backward.h>

#include "ops/aten/table.h"

namespace danlu::ops::aten {

NormResult rms_norm(const at::Tensor& x, const at::Tensor& weight_D, double eps) {
  const at::Tensor wide = x.to(at::kFloat);
  const at::Tensor rstd = at::rsqrt(at::mean(wide.square(), -1, true).add_(eps));
  return {(wide * rstd).to(x.scalar_type()).mul_(weight_D), rstd.reshape({-1})};
}

NormGrads rms_norm_backward(const at::Tensor& x, const at::Tensor& weight_D, const at::Tensor& rstd,
                            const at::Tensor& dy, bool x_grad, bool weight_grad) {
  const int64_t dim = x.size(-1);
  const at::Tensor rstd_N1 = rstd.view({-1, 1});
  const at::Tensor unit_ND = x.view({-1, dim}).to(at::kFloat) * rstd_N1;
  const at::Tensor dy_ND = dy.reshape({-1, dim}).to(at::kFloat);
  NormGrads grads;
  // The weight met what was rounded.
  if (weight_grad) grads.weight_D = (dy_ND * unit_ND.to(x.scalar_type())).sum(0);
  if (!x_grad) return grads;
  at::Tensor d_unit_ND = dy_ND * weight_D;
  const at::Tensor along_N1 = at::mean(d_unit_ND * unit_ND, -1, true);
  grads.x = d_unit_ND.sub_(unit_ND * along_N1).mul_(rstd_N1).to(x.scalar_type()).view(x.sizes());
  return grads;
}

at::Tensor rotary(const at::Tensor& x_NQD, const RotaryTable& table, bool inverse) {
  const int64_t half = table.cos_NE.size(1);
  const at::Tensor a = x_NQD.narrow(2, 0, half), b = x_NQD.narrow(2, half, half);
  const at::Tensor cos = table.cos_NE.unsqueeze(1), sin = table.sin_NE.unsqueeze(1);
  const double sign = inverse ? -1 : 1;
  const at::Tensor y_NQD = at::empty(x_NQD.sizes(), x_NQD.options());
  y_NQD.narrow(2, 0, half).copy_((a * cos).sub_(b * sin, sign));
  y_NQD.narrow(2, half, half).copy_((b * cos).add_(a * sin, sign));
  return y_NQD;
}

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) { return at::silu(gate).mul_(up); }

SwigluGrads swiglu_backward(const at::Tensor& gate, const at::Tensor& up, const at::Tensor& dy) {
  const at::Tensor d = dy.contiguous();
  return {at::silu_backward(d * up, gate), at::silu(gate).mul_(d)};
}

}  // namespace danlu::ops::aten
