// layers/recompute.h: trade time for memory: keep the inputs of a piece of the network, run it
// again in backward.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace danlu::layers {

using Body = std::function<at::Tensor(const std::vector<at::Tensor>& inputs)>;

/// body(inputs), remembering only `inputs`. `parameters`: every leaf the body reads that may need a
/// gradient. The body must be a function of its inputs and parameters (dropout from fixed seeds);
/// gradients then equal those of plain body(inputs) bit for bit. Without grad mode: plain body.
at::Tensor recomputed(const Body& body, const std::vector<at::Tensor>& inputs,
                      const std::vector<at::Tensor>& parameters);

}  // namespace danlu::layers
