// ops/empty_cpu.h: memory for results on the CPU. Internal to ops.
#pragma once
#include <ATen/EmptyTensor.h>
#include <ATen/core/Tensor.h>

namespace danlu::ops::cpu {

/// Does what at::empty does, past libtorch's dispatcher: in the pass of one token, behind whose
/// weights nothing is in a cache, the way through it takes longer than most of what is not a
/// product.
inline at::Tensor empty_cpu(at::IntArrayRef sizes, at::ScalarType type) {
  return at::Tensor(at::detail::empty_cpu(sizes, type));
}

}  // namespace danlu::ops::cpu
