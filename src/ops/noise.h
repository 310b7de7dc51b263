// ops/noise.h: uniform noise that depends on the token, not on its place in a batch.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace danlu::ops {

/// x + sizes[n] u, u uniform in [-1, 1) in steps of 2^-23, by a hash of (keys[n], salt, column) as
/// ops/dropout.h's: equal keys give equal rows, whatever other rows there are. The product is
/// computed in f32 (f64 for f64) and rounded to x's type before it is added.
/// Shapes  x_NH [N, H]; sizes_N f64 [N] and keys_N int64 [N], both on the host. Grad  through x.
/// Errors  ModelError unless the shapes fit.
at::Tensor with_noise(const at::Tensor& x_NH, const at::Tensor& sizes_N, const at::Tensor& keys_N,
                      uint64_t salt);

namespace oracle {
/// What is added, by ATen's operators on the device of sizes and keys.
at::Tensor noise(const at::Tensor& sizes_N, const at::Tensor& keys_N, uint64_t salt,
                 int64_t columns, at::ScalarType type);
}  // namespace oracle
}  // namespace danlu::ops
