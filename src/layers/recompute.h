// layers/recompute.h: recomputation, which trades time for memory: a piece of the network keeps its
// inputs alone and runs again in backward.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

namespace danlu::layers {

/// The parts of a layer that are recomputed in backward instead of being kept.
struct Again {
  bool attention_core = false;
  bool gated_product = false;      ///< the gated activation and the product after it
  bool activation_output = false;  ///< the gated activation alone
  bool norm_outputs = false;
};

using Body = std::function<at::Tensor(const std::vector<at::Tensor>& inputs)>;

/// Gives body(inputs) and keeps only `inputs` for the backward. parameters: every leaf that the
/// body reads and that may need a gradient. The body must be a function of its inputs and
/// parameters (with dropout from fixed seeds). Gradients then equal those of plain body(inputs) bit
/// for bit. Without grad mode nothing is kept.
at::Tensor recomputed(const Body& body, const std::vector<at::Tensor>& inputs,
                      const std::vector<at::Tensor>& parameters);

/// The same for a body that is one operator. If its kernel keeps nothing but its inputs, as fused
/// ones do, the operator is not run again.
at::Tensor keeping_inputs(const Body& body, const std::vector<at::Tensor>& inputs,
                          const std::vector<at::Tensor>& parameters);

}  // namespace danlu::layers
