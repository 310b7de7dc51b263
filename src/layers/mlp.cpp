#include "layers/mlp.h"

#include <ATen/core/Tensor.h>

#include "layers/recompute.h"
#include "ops/swiglu.h"

namespace danlu::layers {

at::Tensor Mlp::forward(const at::Tensor& x_NH, const std::shared_ptr<const Pass>& pass) const {
  const at::Tensor inside_NH = region.enter(x_NH);
  const std::vector<at::Tensor> inputs{gate.forward(inside_NH, *pass),
                                       up.forward(inside_NH, *pass)};
  // `down` is part of the body because its weight gradient would keep the product alive otherwise;
  // the exchange is not: backward needs no sum.
  const Body body = [this, pass](const std::vector<at::Tensor>& gate_up) {
    return down.partial(ops::swiglu(gate_up[0], gate_up[1]), *pass, region);
  };
  if (!pass->recompute_inner) return down.leave(body(inputs), region);
  std::vector<at::Tensor> parameters;
  down.collect(parameters);
  return down.leave(recomputed(body, inputs, parameters), region);
}

void Mlp::collect(std::vector<at::Tensor>& tensors) const {
  for (const Linear* linear : {&gate, &up, &down}) linear->collect(tensors);
}

}  // namespace danlu::layers
