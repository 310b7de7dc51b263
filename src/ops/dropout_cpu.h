// ops/dropout_cpu.h: the loop of dropout on a CPU. Internal to ops.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace danlu::ops::cpu {

/// An element stays if its 32 random bits are not below this.
inline uint64_t dropout_threshold(double p) { return static_cast<uint64_t>(p * 4294967296.0); }

/// As ops::dropout, without gradient.
at::Tensor dropped(const at::Tensor& x_NI, double p, const at::Tensor& keys_N, uint64_t salt,
                   int64_t first_column);

}  // namespace danlu::ops::cpu
