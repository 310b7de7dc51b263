// ops/activation.h: the activations of feed-forward layers that have no gate.
#pragma once
#include <ATen/core/Tensor.h>

namespace danlu::ops {

enum class Activation {
  kGelu,       ///< x Φ(x), Φ the normal distribution (arXiv:1606.08415), by erf
  kQuickGelu,  ///< x sigmoid(1.702 x), its approximation
};

/// Shapes  any; result as x. Dtypes  computed in f32 (f64 for f64) and rounded once.
/// Grad    through x, which alone is kept for the backward.
at::Tensor activation(const at::Tensor& x, Activation kind);

}  // namespace danlu::ops
