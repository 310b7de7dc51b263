// ops/empty_cpu.h: memory for results on the CPU. Internal to ops.
#pragma once
#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>

namespace danlu::ops::cpu {

/// Does what at::empty does, without libtorch's dispatcher. In the pass of one token the weights
/// have driven everything else out of the caches, and the way through the dispatcher takes longer
/// than most of what is not a product.
inline at::Tensor empty_cpu(at::IntArrayRef sizes, at::ScalarType type) {
  return at::Tensor(at::detail::empty_cpu(sizes, type));
}

}  // namespace danlu::ops::cpu
