// ops/dropout.h: dropout whose mask depends on the token, not on its place in a batch.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace danlu::ops {

/// Element (n, i) is 0 with probability p, else x / (1 - p), by a hash of (keys[n], salt,
/// first_column + i): equal keys give equal rows of the mask, whatever other rows there are, and
/// ranks that hold some columns each drop what one rank would.
/// Shapes  x_NI [N, I]; keys_N int64 [N] on x's device. Dtypes  computed in f32 (f64 for f64) and
///         rounded once. Grad  through x; the mask is made again in backward, not kept.
/// Errors  ModelError unless 0 <= p < 1 and the shapes fit.
at::Tensor dropout(const at::Tensor& x_NI, double p, const at::Tensor& keys_N, uint64_t salt,
                   int64_t first_column = 0);

namespace oracle {
at::Tensor dropout(const at::Tensor& x_NI, double p, const at::Tensor& keys_N, uint64_t salt,
                   int64_t first_column = 0);
}
}  // namespace danlu::ops
