// ops/dropout.h: dropout whose mask is a function of a seed, so that it can be made again.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace danlu::ops {

/// Each element is 0 with probability p, else x / (1 - p). Equal seeds and shapes: equal masks.
/// Grad  through x. Errors  ModelError unless 0 <= p < 1.
at::Tensor dropout(const at::Tensor& x, double p, uint64_t seed);

}  // namespace danlu::ops
