#include "ops/linear.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <torch/csrc/autograd/custom_function.h>

#include "device/select.h"
#include "ops/check.h"
#include "ops/kernels.h"
#include "ops/widened_product.h"

namespace danlu::ops {
namespace linear_detail {

void check(const at::Tensor& x_NI, const at::Tensor& weight_OI, const at::Tensor& bias_O) {
  require(weight_OI.dim() == 2 && x_NI.size(-1) == weight_OI.size(1), "linear", "x ", x_NI.sizes(),
          " must end in I of the weight [O, I] ", weight_OI.sizes());
  require(!bias_O.defined() || (bias_O.dim() == 1 && bias_O.size(0) == weight_OI.size(0)), "linear",
          "bias must be [O] with O = ", weight_OI.size(0));
  require(x_NI.scalar_type() == weight_OI.scalar_type(), "linear", "x is ", x_NI.scalar_type(),
          ", the weight ", weight_OI.scalar_type(), "; they must be equal");
}

at::Tensor defined_or_none(const at::Tensor& bias_O) {
  return bias_O.numel() > 0 ? bias_O : at::Tensor();
}

/// Linear with a weight that is widened as it is used, forward and backward.
class WidenedLinear : public torch::autograd::Function<WidenedLinear> {
 public:
  using List = torch::autograd::variable_list;
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x_NI,
                            const at::Tensor& weight_OI, const at::Tensor& bias_O) {
    ctx->saved_data["x_grad"] = x_NI.requires_grad();
    ctx->saved_data["weight_grad"] = weight_OI.requires_grad();
    ctx->saved_data["bias_grad"] = bias_O.requires_grad();
    ctx->save_for_backward({weight_OI.requires_grad() ? x_NI : at::Tensor(), weight_OI});
    return cpu::widened_product(x_NI, weight_OI, defined_or_none(bias_O), x_NI.scalar_type());
  }

  static List backward(torch::autograd::AutogradContext* ctx, const List& grads) {
    const List saved = ctx->get_saved_variables();
    const at::Tensor &x_NI = saved[0], &weight_OI = saved[1], &d_y_NO = grads[0];
    const at::ScalarType type = weight_OI.scalar_type();
    List result(3);
    if (ctx->saved_data["x_grad"].toBool())
      result[0] = cpu::widened_input_grad(d_y_NO, weight_OI, type);
    if (ctx->saved_data["weight_grad"].toBool())
      result[1] = cpu::widened_weight_grad(d_y_NO, x_NI, type);
    if (ctx->saved_data["bias_grad"].toBool())
      result[2] = d_y_NO.sum(0, false, at::kFloat).to(type);
    return result;
  }
};

}  // namespace linear_detail

at::Tensor linear(const at::Tensor& x_NI, const at::Tensor& weight_OI, const at::Tensor& bias_O) {
  linear_detail::check(x_NI, weight_OI, bias_O);
  if (!cpu::needs_widening(weight_OI)) return at::linear(x_NI, weight_OI, bias_O);
  if (kernels() == Kernels::kComposite) return oracle::linear(x_NI, weight_OI, bias_O);
  std::vector<int64_t> sizes = x_NI.sizes().vec();
  sizes.back() = weight_OI.size(0);
  // libtorch 1.13 takes no undefined tensors here: nothing is a bias of length 0.
  const at::Tensor bias = bias_O.defined() ? bias_O : at::empty({0}, weight_OI.options());
  return linear_detail::WidenedLinear::apply(x_NI.reshape({-1, weight_OI.size(1)}), weight_OI, bias)
      .view(sizes);
}

at::Tensor oracle::linear(const at::Tensor& x_NI, const at::Tensor& weight_OI,
                          const at::Tensor& bias_O) {
  linear_detail::check(x_NI, weight_OI, bias_O);
  if (device::has_matmul(x_NI.device(), x_NI.scalar_type()))
    return at::linear(x_NI, weight_OI, bias_O);
  const at::Tensor bias = bias_O.defined() ? bias_O.to(at::kFloat) : bias_O;
  return at::linear(x_NI.to(at::kFloat), weight_OI.to(at::kFloat), bias).to(x_NI.scalar_type());
}

at::Tensor batched_product(const at::Tensor& a_BNK, const at::Tensor& b_BKM) {
  if (device::has_matmul(a_BNK.device(), a_BNK.scalar_type())) return at::bmm(a_BNK, b_BKM);
  return at::bmm(a_BNK.to(at::kFloat), b_BKM.to(at::kFloat)).to(a_BNK.scalar_type());
}

}  // namespace danlu::ops
