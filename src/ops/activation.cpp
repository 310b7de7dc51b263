#include "ops/activation.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/sigmoid.h>
#include <torch/csrc/autograd/custom_function.h>

#include "device/dtype.h"
#include "ops/autograd.h"

namespace danlu::ops {
namespace {

constexpr double kQuick = 1.702;

at::Tensor activated(const at::Tensor& wide, Activation kind) {
  return kind == Activation::kGelu ? at::gelu(wide) : wide * at::sigmoid(wide * kQuick);
}

class OwnActivation : public torch::autograd::Function<OwnActivation> {
 public:
  using List = torch::autograd::variable_list;
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x,
                            int64_t kind) {
    ctx->save_for_backward({x});
    ctx->saved_data["kind"] = kind;
    return activated(x.to(device::wide_type(x.scalar_type())), static_cast<Activation>(kind))
        .to(x.scalar_type());
  }
  static List backward(torch::autograd::AutogradContext* ctx, const List& grads) {
    const at::Tensor x = ctx->get_saved_variables()[0];
    const at::ScalarType type = device::wide_type(x.scalar_type());
    const at::Tensor wide = x.to(type), grad = grads[0].to(type);
    if (static_cast<Activation>(ctx->saved_data["kind"].toInt()) == Activation::kGelu)
      return {at::gelu_backward(grad, wide).to(x.scalar_type()), {}};
    const at::Tensor open = at::sigmoid(wide * kQuick);
    const at::Tensor slope = open * (1 + kQuick * wide * (1 - open));
    return {(grad * slope).to(x.scalar_type()), {}};
  }
};

}  // namespace

at::Tensor activation(const at::Tensor& x, Activation kind) {
  if (needs_no_graph({&x}))
    return activated(x.to(device::wide_type(x.scalar_type())), kind).to(x.scalar_type());
  return OwnActivation::apply(x, static_cast<int64_t>(kind));
}

}  // namespace danlu::ops
