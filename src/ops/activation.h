// ops/activation.h: the activations of feed-forward layers, but for SwiGLU (ops/swiglu.h).
#pragma once
#include <ATen/core/Tensor.h>

namespace danlu::ops {

enum class Activation {
  kGelu,       ///< x Φ(x), Φ the normal distribution (arXiv:1606.08415), by erf
  kQuickGelu,  ///< x sigmoid(1.702 x), its approximation
  kGeluTanh,   ///< x (1 + tanh(sqrt(2/π) (x + 0.044715 x³))) / 2, another
};

/// Shapes  any; result as x. Dtypes  computed in f32 (f64 for f64) and rounded once.
/// Grad    through x, which alone is kept for the backward.
at::Tensor activation(const at::Tensor& x, Activation kind);

/// 1 / (1 + exp(-x)), in x's type. Grad  through x; the result alone is kept.
at::Tensor sigmoid(const at::Tensor& x);

/// y = activation(gate) * up.
/// Shapes  gate, up and result equal. Dtypes  one; the activation is computed in f32 (f64 for f64)
///         and rounded before the product, as Hugging Face does. Grad  through both, which alone
///         are kept. Errors  ModelError if the shapes differ.
at::Tensor gated_activation(const at::Tensor& gate_NF, const at::Tensor& up_NF, Activation kind);

}  // namespace danlu::ops
