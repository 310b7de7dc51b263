// ops/keyed_bits.h: random bits of a token and a column, by ATen's operators. Internal to ops.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace danlu::ops {

/// 32 random bits for element (n, first_column + i), as int64 [N, columns]: one hash of (keys[n],
/// salt, column / 2) gives those of two neighbours, the even column's in its low half.
/// keys_N: int64 [N]; the result is on its device.
at::Tensor keyed_bits(const at::Tensor& keys_N, uint64_t salt, int64_t first_column,
                      int64_t columns);

}  // namespace danlu::ops
