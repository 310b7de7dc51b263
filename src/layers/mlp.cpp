#include "layers/mlp.h"

#include <ATen/core/Tensor.h>

#include "layers/saved_tensors.h"
#include "ops/activation.h"
#include "ops/pointwise.h"
#include "ops/swiglu.h"

namespace danlu::layers {

at::Tensor Mlp::activated(const std::vector<at::Tensor>& inputs) const {
  const ops::Activation kind =
      activation == arch::Activation::kGelu ? ops::Activation::kGelu : ops::Activation::kGeluTanh;
  if (inputs.size() == 1) return ops::activation(inputs[0], kind);
  if (activation == arch::Activation::kSilu) return ops::swiglu(inputs[0], inputs[1]);
  return ops::gated_activation(inputs[0], inputs[1], kind);
}

std::vector<at::Tensor> Mlp::inputs_of(const at::Tensor& x_NH, const Pass& pass) const {
  if (gate_up.defined()) {
    const at::Tensor joined_NF = gate_up.forward(x_NH, pass);
    const int64_t width = joined_NF.size(1) / 2;
    return ops::parts_of(joined_NF, {width, width}, 1);
  }
  if (!gate.defined()) return {up.forward(x_NH, pass)};
  return forward_each({&gate, &up}, x_NH, pass);
}

at::Tensor Mlp::partial_of(const std::vector<at::Tensor>& inputs,
                           const std::shared_ptr<const Pass>& pass, const Again& again) const {
  if (again.activation_output) {
    const Make make = [this](const std::vector<at::Tensor>& parts) { return activated(parts); };
    const at::Tensor active_NF = keeping_inputs(make, inputs, {});
    const MadeAgain not_kept(active_NF, inputs, make);
    return down.partial(active_NF, *pass, region);
  }
  // `down` is part of the body because its weight gradient would keep the product alive otherwise;
  // the exchange is not: backward needs no sum.
  const Body body = [this, pass](const std::vector<at::Tensor>& parts) {
    return down.partial(activated(parts), *pass, region);
  };
  return again.gated_product ? recomputed(body, inputs, tensors_of(down)) : body(inputs);
}

void Mlp::visit(Visitor& visitor) {
  for (Linear* linear : {&gate, &up, &gate_up, &down}) linear->visit(visitor);
}

}  // namespace danlu::layers
