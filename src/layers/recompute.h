// layers/recompute.h: trade time for memory: keep the inputs of a piece of the network, run it
// again in backward.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace danlu::layers {

/// What of a layer is not kept for backward but made again there.
struct Again {
  bool attention_core = false;
  bool gated_product = false;      ///< the gated activation, and the product it enters
  bool activation_output = false;  ///< of the gated activation, which alone is made again
  bool norm_outputs = false;
};

using Body = std::function<at::Tensor(const std::vector<at::Tensor>& inputs)>;

/// body(inputs), remembering only `inputs`. `parameters`: every leaf the body reads that may need a
/// gradient. The body must be a function of its inputs and parameters (dropout from fixed seeds);
/// gradients then equal those of plain body(inputs) bit for bit. Without grad mode: plain body.
at::Tensor recomputed(const Body& body, const std::vector<at::Tensor>& inputs,
                      const std::vector<at::Tensor>& parameters);

/// The same of a body that is one operator: where its kernel keeps no more than its inputs, as
/// fused ones do, it is not run again.
at::Tensor keeping_inputs(const Body& body, const std::vector<at::Tensor>& inputs,
                          const std::vector<at::Tensor>& parameters);

}  // namespace danlu::layers
