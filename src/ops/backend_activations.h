// ops/backend_activations.h: the composite's entries for activations (ops/backend.h). Internal to
// ops.
#pragma once
#include <ATen/core/Tensor.h>

#include "ops/backend.h"

namespace danlu::ops {

at::Tensor composite_activation(const at::Tensor& x, Activation kind);
at::Tensor composite_activation_backward(const at::Tensor& dy, const at::Tensor& x,
                                         Activation kind);
at::Tensor composite_gated_activation(const at::Tensor& gate, const at::Tensor& up,
                                      Activation kind);
SwigluGrads composite_gated_activation_backward(const at::Tensor& gate, const at::Tensor& up,
                                                const at::Tensor& dy, Activation kind);

}  // namespace danlu::ops
