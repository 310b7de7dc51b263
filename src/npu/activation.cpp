// GELU in its forms, and caps on logits.
#include <ATen/core/Tensor.h>

#include "npu/arithmetic.h"
#include "npu/operators.h"
#include "npu/table.h"

namespace danlu::npu {
namespace {

using ops::Activation;

constexpr double kQuick = 1.702;

at::Tensor gate_of(const at::Tensor& wide_x) { return npu::sigmoid(times(wide_x, kQuick)); }

/// grad and x f32.
at::Tensor slope_times(const at::Tensor& grad, const at::Tensor& x, Activation kind) {
  if (kind == Activation::kQuickGelu) {
    const at::Tensor open = gate_of(x);
    // open (1 + 1.702 x (1 - open))
    const at::Tensor closed = plus(times(open, -1.0), 1.0);
    const at::Tensor slope = times(open, plus(times(times(x, closed), kQuick), 1.0));
    return times(grad, slope);
  }
  const at::Tensor result = fresh(x);
  char none[] = "none", tanh[] = "tanh";
  if (x.numel() > 0) {
    aclnn::gelu_backward(View(grad), View(x), kind == Activation::kGelu ? none : tanh,
                         View(result));
  }
  return result;
}

}  // namespace

at::Tensor activation(const at::Tensor& x, Activation kind) {
  if (kind == Activation::kQuickGelu) {
    const at::Tensor wide_x = wide(x);
    return cast(times(gate_of(wide_x), wide_x), x.scalar_type());
  }
  constexpr int64_t kByErf = 0, kByTanh = 1;
  const at::Tensor y = fresh(x, x.sizes(), x.scalar_type());
  if (x.numel() > 0) aclnn::gelu(View(x), kind == Activation::kGelu ? kByErf : kByTanh, View(y));
  return y;
}

at::Tensor activation_backward(const at::Tensor& dy, const at::Tensor& x, Activation kind) {
  return cast(slope_times(wide(dy), wide(x), kind), x.scalar_type());
}

at::Tensor gated_activation(const at::Tensor& gate, const at::Tensor& up, Activation kind) {
  return times(npu::activation(gate, kind), up);
}

ops::SwigluGrads gated_activation_backward(const at::Tensor& gate, const at::Tensor& up,
                                           const at::Tensor& dy, Activation kind) {
  const at::Tensor grad = wide(dy);
  return {cast(slope_times(times(grad, wide(up)), wide(gate), kind), gate.scalar_type()),
          cast(times(grad, wide(npu::activation(gate, kind))), up.scalar_type())};
}

at::Tensor capped(const at::Tensor& x, double cap) {
  const at::Tensor share = times(wide(x), 1.0 / cap), result = fresh(share);
  if (x.numel() > 0) aclnn::tanh(View(share), View(result));
  multiply(result, cap);
  return cast(result, x.scalar_type());
}

at::Tensor through_cap(const at::Tensor& d_y, const at::Tensor& y, double cap) {
  const at::Tensor share = times(wide(y), 1.0 / cap);
  return times(wide(d_y), plus(times(times(share, share), -1.0), 1.0));
}

}  // namespace danlu::npu
