// ops/swiglu.h: the gated activation of Llama-like feed-forward layers.
#pragma once
#include <ATen/core/Tensor.h>

namespace danlu::ops {

/// y = silu(gate) * up, silu(x) = x * sigmoid(x).
/// Shapes  gate, up and result equal. Dtypes  silu is computed in f32 (f64 for f64) and rounded
///         before the product, as Hugging Face does. Grad  through both.
/// Errors  ModelError if the shapes differ.
at::Tensor swiglu(const at::Tensor& gate_NF, const at::Tensor& up_NF);

namespace oracle {
at::Tensor swiglu(const at::Tensor& gate_NF, const at::Tensor& up_NF);
}
}  // namespace danlu::ops
