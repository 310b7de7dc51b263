#include "layers/mlp.h"

#include <ATen/core/Tensor.h>

#include "layers/saved_tensors.h"
#include "ops/pointwise.h"
#include "ops/swiglu.h"

namespace danlu::layers {

at::Tensor Mlp::partial(const at::Tensor& x_NH, const std::shared_ptr<const Pass>& pass,
                        const Again& again) const {
  const std::vector<at::Tensor> inputs = forward_each({&gate, &up}, x_NH, *pass);
  if (again.activation_output) {
    const Make activation = [](const std::vector<at::Tensor>& gate_up) {
      return ops::swiglu(gate_up[0], gate_up[1]);
    };
    const at::Tensor active_NF = keeping_inputs(activation, inputs, {});
    const MadeAgain not_kept(active_NF, inputs, activation);
    return down.partial(active_NF, *pass, region);
  }
  // `down` is part of the body because its weight gradient would keep the product alive otherwise;
  // the exchange is not: backward needs no sum.
  const Body body = [this, pass](const std::vector<at::Tensor>& gate_up) {
    return down.partial(ops::swiglu(gate_up[0], gate_up[1]), *pass, region);
  };
  return again.gated_product ? recomputed(body, inputs, tensors_of(down)) : body(inputs);
}

void Mlp::visit(Visitor& visitor) {
  for (Linear* linear : {&gate, &up, &down}) linear->visit(visitor);
}

}  // namespace danlu::layers
