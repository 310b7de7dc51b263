// ops/kernels.h: which implementation of an op runs: the fused one of the device, or the composite
// of ATen calls that defines it (the oracle).
#pragma once
#include <ATen/core/Tensor.h>

namespace danlu::ops {

enum class Kernels {
  kFused,      ///< where one exists for the tensors' device and dtype; the composite elsewhere
  kComposite,  ///< always the composite
};

/// DANLU_KERNELS=composite|fused sets the start value (fused without it); it holds for the whole
/// process. Errors: UsageError if the variable has another value.
Kernels kernels();
void set_kernels(Kernels kernels);

/// True if a fused CPU kernel may take `x`: on the CPU, kernels() is kFused, and the type is f32,
/// bf16, or f16 on a processor that converts it (F16C).
bool fused_on_cpu(const at::Tensor& x);

}  // namespace danlu::ops
