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
#include "ops/backend_activations.h"
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

const Backend& activation_table(const at::Tensor& x) {
  return completed_backend(x.device().type());
}

class OwnActivation : public torch::autograd::Function<OwnActivation> {
 public:
  using List = torch::autograd::variable_list;
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x,
                            int64_t kind) {
    ctx->save_for_backward({x});
    ctx->saved_data["kind"] = kind;
    return activation_table(x).activation(x, static_cast<Activation>(kind));
  }
  static List backward(torch::autograd::AutogradContext* ctx, const List& grads) {
    const at::Tensor x = ctx->get_saved_variables()[0];
    const auto kind = static_cast<Activation>(ctx->saved_data["kind"].toInt());
    return {activation_table(x).activation_backward(grads[0], x, kind), {}};
  }
};

class OwnSigmoid : public torch::autograd::Function<OwnSigmoid> {
 public:
  using List = torch::autograd::variable_list;
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x) {
    at::Tensor y = activation_table(x).sigmoid(x);
    ctx->save_for_backward({y});
    return y;
  }
  static List backward(torch::autograd::AutogradContext* ctx, const List& grads) {
    const at::Tensor y = ctx->get_saved_variables()[0];
    return {activation_table(y).sigmoid_backward(grads[0], y)};
  }
};

class OwnGatedActivation : public torch::autograd::Function<OwnGatedActivation> {
 public:
  using List = torch::autograd::variable_list;
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& gate_NF,
                            const at::Tensor& up_NF, int64_t kind) {
    ctx->save_for_backward({gate_NF, up_NF});
    ctx->saved_data["kind"] = kind;
    return activation_table(up_NF).gated_activation(gate_NF, up_NF, static_cast<Activation>(kind));
  }
  static List backward(torch::autograd::AutogradContext* ctx, const List& grads) {
    const List saved = ctx->get_saved_variables();
    const auto kind = static_cast<Activation>(ctx->saved_data["kind"].toInt());
    const auto [d_gate, d_up] =
        activation_table(saved[1]).gated_activation_backward(saved[0], saved[1], grads[0], kind);
    return {d_gate, d_up, {}};
  }
};

}  // namespace

at::Tensor activation(const at::Tensor& x, Activation kind) {
  if (needs_no_graph({&x})) return activation_table(x).activation(x, kind);
  return OwnActivation::apply(x, static_cast<int64_t>(kind));
}

at::Tensor sigmoid(const at::Tensor& x) {
  return needs_no_graph({&x}) ? activation_table(x).sigmoid(x) : OwnSigmoid::apply(x);
}

at::Tensor gated_activation(const at::Tensor& gate_NF, const at::Tensor& up_NF, Activation kind) {
  require(gate_NF.sizes() == up_NF.sizes() && gate_NF.scalar_type() == up_NF.scalar_type(),
          "gated_activation", "gate ", gate_NF.sizes(), " and up ", up_NF.sizes(),
          " must have one shape and dtype");
  if (needs_no_graph({&gate_NF, &up_NF}))
    return activation_table(up_NF).gated_activation(gate_NF, up_NF, kind);
  return OwnGatedActivation::apply(gate_NF, up_NF, static_cast<int64_t>(kind));
}

at::Tensor composite_activation(const at::Tensor& x, Activation kind) {
  return activated(widened(x), kind).to(x.scalar_type());
}

at::Tensor composite_activation_backward(const at::Tensor& dy, const at::Tensor& x,
                                         Activation kind) {
  return activation_grad(widened(dy), widened(x), kind).to(x.scalar_type());
}

at::Tensor composite_gated_activation(const at::Tensor& gate, const at::Tensor& up,
                                      Activation kind) {
  return composite_activation(gate, kind) * up;
}

SwigluGrads composite_gated_activation_backward(const at::Tensor& gate, const at::Tensor& up,
                                                const at::Tensor& dy, Activation kind) {
  const at::ScalarType type = up.scalar_type();
  const at::Tensor wide = widened(gate), grad = widened(dy);
  // Through the rounded activation, which the product was made of.
  const at::Tensor d_up = (grad * widened(activated(wide, kind).to(type))).to(type);
  return {activation_grad(grad * widened(up), wide, kind).to(type), d_up};
}

}  // namespace danlu::ops
