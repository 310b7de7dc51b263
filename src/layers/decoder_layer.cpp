#include "layers/decoder_layer.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>

#include "layers/recompute.h"

namespace danlu::layers {

at::Tensor DecoderLayer::forward(const at::Tensor& x_NH, const std::shared_ptr<const Pass>& pass,
                                 bool recompute) const {
  const Body body = [this, pass](const std::vector<at::Tensor>& inputs) {
    const at::Tensor middle_NH =
        inputs[0] + attention.forward(attention_norm.forward(inputs[0]), *pass);
    return middle_NH + mlp.forward(mlp_norm.forward(middle_NH), pass);
  };
  if (!recompute) return body({x_NH});
  std::vector<at::Tensor> parameters;
  collect(parameters);
  return recomputed(body, {x_NH}, parameters);
}

void DecoderLayer::collect(std::vector<at::Tensor>& tensors) const {
  tensors.push_back(attention_norm.weight.tensor);
  attention.collect(tensors);
  tensors.push_back(mlp_norm.weight.tensor);
  mlp.collect(tensors);
}

}  // namespace danlu::layers
