#include "ops/activation.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/sigmoid.h>
#include <torch/csrc/autograd/custom_function.h>

#include "device/dtype.h"
#include "ops/autograd.h"
#include "ops/backend.h"
#include "ops/check.h"

namespace danlu::ops {
namespace {

constexpr double kQuick = 1.702;

at::Tensor activated(const at::Tensor& wide, Activation kind) {
  if (kind == Activation::kQuickGelu) return wide * at::sigmoid(wide * kQuick);
  return at::gelu(wide, kind == Activation::kGelu ? "none" : "tanh");
}

/// `grad` and `wide` are f32 or f64.
at::Tensor activation_grad(const at::Tensor& grad, const at::Tensor& wide, Activation kind) {
  if (kind != Activation::kQuickGelu)
    return at::gelu_backward(grad, wide, kind == Activation::kGelu ? "none" : "tanh");
  const at::Tensor open = at::sigmoid(wide * kQuick);
  return grad * (open * (1 + kQuick * wide * (1 - open)));
}

at::Tensor widened(const at::Tensor& x) { return x.to(device::wide_type(x.scalar_type())); }

class OwnActivation : public torch::autograd::Function<OwnActivation> {
 public:
  using List = torch::autograd::variable_list;
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x,
                            int64_t kind) {
    ctx->save_for_backward({x});
    ctx->saved_data["kind"] = kind;
    return activated(widened(x), static_cast<Activation>(kind)).to(x.scalar_type());
  }
  static List backward(torch::autograd::AutogradContext* ctx, const List& grads) {
    const at::Tensor x = ctx->get_saved_variables()[0];
    const auto kind = static_cast<Activation>(ctx->saved_data["kind"].toInt());
    return {activation_grad(widened(grads[0]), widened(x), kind).to(x.scalar_type()), {}};
  }
};

class OwnSigmoid : public torch::autograd::Function<OwnSigmoid> {
 public:
  using List = torch::autograd::variable_list;
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x) {
    at::Tensor y = completed_backend(x.device().type()).sigmoid(x);
    ctx->save_for_backward({y});
    return y;
  }
  static List backward(torch::autograd::AutogradContext* ctx, const List& grads) {
    const at::Tensor y = ctx->get_saved_variables()[0];
    return {completed_backend(y.device().type()).sigmoid_backward(grads[0], y)};
  }
};

class OwnGatedActivation : public torch::autograd::Function<OwnGatedActivation> {
 public:
  using List = torch::autograd::variable_list;
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& gate_NF,
                            const at::Tensor& up_NF, int64_t kind) {
    ctx->save_for_backward({gate_NF, up_NF});
    ctx->saved_data["kind"] = kind;
    return activated(widened(gate_NF), static_cast<Activation>(kind)).to(up_NF.scalar_type()) *
           up_NF;
  }
  static List backward(torch::autograd::AutogradContext* ctx, const List& grads) {
    const List saved = ctx->get_saved_variables();
    const at::Tensor &gate_NF = saved[0], &up_NF = saved[1];
    const auto kind = static_cast<Activation>(ctx->saved_data["kind"].toInt());
    const at::ScalarType type = up_NF.scalar_type();
    const at::Tensor wide = widened(gate_NF), grad = widened(grads[0]);
    // Through the rounded activation, which the product was made of.
    at::Tensor d_up = (grad * widened(activated(wide, kind).to(type))).to(type);
    return {activation_grad(grad * widened(up_NF), wide, kind).to(type), d_up, {}};
  }
};

}  // namespace

at::Tensor activation(const at::Tensor& x, Activation kind) {
  if (needs_no_graph({&x})) return activated(widened(x), kind).to(x.scalar_type());
  return OwnActivation::apply(x, static_cast<int64_t>(kind));
}

at::Tensor sigmoid(const at::Tensor& x) {
  return needs_no_graph({&x}) ? completed_backend(x.device().type()).sigmoid(x)
                              : OwnSigmoid::apply(x);
}

at::Tensor gated_activation(const at::Tensor& gate_NF, const at::Tensor& up_NF, Activation kind) {
  require(gate_NF.sizes() == up_NF.sizes() && gate_NF.scalar_type() == up_NF.scalar_type(),
          "gated_activation", "gate ", gate_NF.sizes(), " and up ", up_NF.sizes(),
          " must have one shape and dtype");
  if (needs_no_graph({&gate_NF, &up_NF}))
    return activated(widened(gate_NF), kind).to(up_NF.scalar_type()) * up_NF;
  return OwnGatedActivation::apply(gate_NF, up_NF, static_cast<int64_t>(kind));
}

}  // namespace danlu::ops
