// ops/kernels.h: which implementation of an op runs: that of the device's table (ops/backend.h), or
// the composite of ATen calls that defines it (the oracle).
#pragma once

namespace danlu::ops {

enum class Kernels {
  kFused,  ///< where one exists for the tensors' device and dtype; the composite elsewhere
  /// Always the composite, of work that autograd records, of the head's loss, and of decoding's
  /// attention and quantised products. Sums of gradients, the optimizer, rows and factors are the
  /// table's still.
  kComposite,
};

/// DANLU_KERNELS=composite|fused sets the start value (fused without it); it holds for the whole
/// process. Errors: UsageError if the variable has another value.
Kernels kernels();
void set_kernels(Kernels kernels);

}  // namespace danlu::ops
