#include "ops/linear.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include <algorithm>

#include "device/dtype.h"
#include "device/select.h"
#include "ops/backend.h"
#include "ops/check.h"
#include "ops/kernels.h"
#include "ops/pointwise.h"
#include "ops/weight_grad.h"

namespace danlu::ops {
namespace {

void check_linear(const at::Tensor& x_NI, const at::Tensor& weight_OI, const at::Tensor& bias_O) {
  require(weight_OI.dim() == 2 && x_NI.dim() > 0 && x_NI.size(-1) == weight_OI.size(1), "linear",
          "x ", x_NI.sizes(), " must end in I of the weight [O, I] ", weight_OI.sizes());
  require(!bias_O.defined() || (bias_O.dim() == 1 && bias_O.size(0) == weight_OI.size(0)), "linear",
          "bias must be [O] with O = ", weight_OI.size(0), ", got ",
          bias_O.defined() ? bias_O.sizes() : at::IntArrayRef());
  require(x_NI.scalar_type() == weight_OI.scalar_type(), "linear", "x is ", x_NI.scalar_type(),
          ", the weight ", weight_OI.scalar_type(), "; they must be equal");
  require(!bias_O.defined() || bias_O.scalar_type() == weight_OI.scalar_type(), "linear",
          "the bias is ", bias_O.defined() ? bias_O.scalar_type() : at::kFloat, ", the weight ",
          weight_OI.scalar_type(), "; they must be equal");
}

struct HeldGrads : torch::CustomClassHolder {
  LinearGrads grads;
};

at::Tensor defined_or_none(const at::Tensor& bias_O) {
  return bias_O.numel() > 0 ? bias_O : at::Tensor();
}

/// Linear whose backward adds the weight's gradient where training sums it, on the CPU's own
/// products where they take its type.
class OwnLinear : public torch::autograd::Function<OwnLinear> {
 public:
  using List = torch::autograd::variable_list;
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x_NI,
                            const at::Tensor& weight_OI, const at::Tensor& bias_O,
                            const c10::intrusive_ptr<HeldGrads>& main) {
    ctx->saved_data["x_grad"] = x_NI.requires_grad();
    ctx->saved_data["weight_grad"] = weight_OI.requires_grad();
    ctx->saved_data["bias_grad"] = bias_O.requires_grad();
    ctx->saved_data["main"] = at::IValue::make_capsule(main);
    ctx->save_for_backward({weight_OI.requires_grad() ? x_NI : at::Tensor(), weight_OI});
    const at::Tensor bias = defined_or_none(bias_O);
    const Backend* const own = products_for(weight_OI);
    return own ? own->product(x_NI, weight_OI, bias, x_NI.scalar_type())
               : oracle::linear(x_NI, weight_OI, bias);
  }

  static List backward(torch::autograd::AutogradContext* ctx, const List& grads) {
    const List saved = ctx->get_saved_variables();
    const at::Tensor &x_NI = saved[0], &weight_OI = saved[1], &d_y_NO = grads[0];
    const auto holder = ctx->saved_data["main"].toCapsule();
    const LinearGrads& main = static_cast<const HeldGrads&>(*holder).grads;
    const Backend* const own = products_for(weight_OI);
    const at::ScalarType type = weight_OI.scalar_type();
    List result(4);
    if (ctx->saved_data["weight_grad"].toBool()) {
      if (has_place(main.weight)) {
        const auto add = [d_y_NO, x_NI, to = main.weight] {
          add_weight_grad(d_y_NO, x_NI, to->sum, is_first(to));
        };
        if (main.weight->later) {
          main.weight->later->push_back(add);
        } else {
          add();
        }
      } else {
        result[1] = own ? own->weight_grad(d_y_NO, x_NI, type) : matrix_product(d_y_NO.t(), x_NI);
      }
    }
    if (ctx->saved_data["bias_grad"].toBool()) {
      const at::Tensor d_bias_O = column_sums(d_y_NO);
      if (takes_grad(main.bias)) {
        add_to(main.bias->sum, d_bias_O);
      } else {
        result[2] = d_bias_O.to(type);
      }
    }
    if (ctx->saved_data["x_grad"].toBool()) {
      result[0] =
          own ? own->input_grad(d_y_NO, weight_OI, type) : matrix_product(d_y_NO, weight_OI);
    }
    return result;
  }
};

}  // namespace

const Backend* products_for(const at::Tensor& weight_OI) {
  const Backend* const table = fused_for(Work::kProducts, weight_OI);
  return table && table->product ? table : nullptr;
}

at::Tensor linear(const at::Tensor& x_NI, const at::Tensor& weight_OI, const at::Tensor& bias_O,
                  const LinearGrads& main) {
  check_linear(x_NI, weight_OI, bias_O);
  const bool has_main = main.weight || main.bias, records = at::GradMode::is_enabled();
  const Backend* const own = products_for(weight_OI);
  const bool composite = kernels() == Kernels::kComposite && x_NI.is_cpu();
  if (!own && (composite || !(has_main && records))) return oracle::linear(x_NI, weight_OI, bias_O);
  // Two views were a seventh of what a token takes beside its weights.
  if (!records && x_NI.dim() == 2) return own->product(x_NI, weight_OI, bias_O, x_NI.scalar_type());
  std::vector<int64_t> sizes = x_NI.sizes().vec();
  sizes.back() = weight_OI.size(0);
  const at::Tensor rows_NI = x_NI.reshape({-1, weight_OI.size(1)});
  if (!records) return own->product(rows_NI, weight_OI, bias_O, x_NI.scalar_type()).view(sizes);
  // libtorch 1.13 takes no undefined tensors here: nothing is a bias of length 0.
  const at::Tensor bias = bias_O.defined() ? bias_O : at::empty({0}, weight_OI.options());
  auto held = c10::make_intrusive<HeldGrads>();
  held->grads = main;
  return OwnLinear::apply(rows_NI, weight_OI, bias, held).view(sizes);
}

std::vector<at::Tensor> linears(const at::Tensor& x_NI, const std::vector<LinearFactor>& factors) {
  const at::NoGradGuard no_grad;
  const Backend* const own = products_for(factors.front().weight_OI);
  if (own && own->products && x_NI.dim() == 2) {
    for (const auto& [weight_OI, bias_O] : factors) check_linear(x_NI, weight_OI, bias_O);
    return own->products(x_NI, factors);
  }
  std::vector<at::Tensor> results;
  for (const auto& [weight_OI, bias_O] : factors)
    results.push_back(linear(x_NI, weight_OI, bias_O));
  return results;
}

at::Tensor oracle::linear(const at::Tensor& x_NI, const at::Tensor& weight_OI,
                          const at::Tensor& bias_O) {
  check_linear(x_NI, weight_OI, bias_O);
  if (device::has_matmul(x_NI.device(), x_NI.scalar_type(), x_NI.numel() * weight_OI.size(0)))
    return at::linear(x_NI, weight_OI, bias_O);
  const at::Tensor bias = bias_O.defined() ? bias_O.to(at::kFloat) : bias_O;
  return at::linear(x_NI.to(at::kFloat), weight_OI.to(at::kFloat), bias).to(x_NI.scalar_type());
}

at::Tensor matrix_product(const at::Tensor& a_NK, const at::Tensor& b_KM) {
  const at::ScalarType type = a_NK.scalar_type();
  if (device::has_matmul(a_NK.device(), type, a_NK.numel() * b_KM.size(1)))
    return at::mm(a_NK, b_KM);
  return at::mm(a_NK.to(at::kFloat), b_KM.to(at::kFloat)).to(type);
}

at::Tensor batched_product(const at::Tensor& a_BNK, const at::Tensor& b_BKM) {
  if (device::has_matmul(a_BNK.device(), a_BNK.scalar_type(), a_BNK.numel() * b_BKM.size(2)))
    return at::bmm(a_BNK, b_BKM);
  return at::bmm(a_BNK.to(at::kFloat), b_BKM.to(at::kFloat)).to(a_BNK.scalar_type());
}

}  // namespace danlu::ops
