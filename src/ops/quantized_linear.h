// ops/quantized_linear.h: products with weights that stay quantised in memory.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "ops/block_weight.h"

namespace danlu::ops {

/// Whether devices of this kind multiply weights in blocks.
bool multiplies_quantized(c10::DeviceType type);

/// y = x W^T + b. NF4: nf4_linear (ops/nf4.h), with gradient. Blocks: the input is quantised too:
/// each 32 numbers of a row become whole multiples of a 127th of their largest, so that an output
/// is off by at most half of that times the sum of the magnitudes of the 32 weights, over all
/// groups. A row's result does not depend on the others.
///
/// Shapes  x [..., I]; bias_O [O] or undefined; result [..., O]. Dtypes  x and the bias f32, bf16
///         or f16; sums f32, rounded once to x's type. Without gradient but of NF4. Errors
///         ModelError naming shapes or dtypes; DeviceError where x's device has no products with
///         blocks (NF4: every device has them).
at::Tensor quantized_linear(const at::Tensor& x, const QuantizedWeight& weight,
                            const at::Tensor& bias_O = {});

struct QuantizedFactor {
  const QuantizedWeight& weight;
  at::Tensor bias_O = {};
};
/// The same of several weights [O_i, I] of any types that read one input, which is quantised once;
/// one loop over the rows of all. Results [..., O_i].
std::vector<at::Tensor> quantized_linears(const at::Tensor& x,
                                          const std::vector<QuantizedFactor>& factors);

/// Rows `ids_N` [N] of a BlockWeight, in `type`.
at::Tensor quantized_embedding(const at::Tensor& ids_N, const QuantizedWeight& weight,
                               at::ScalarType type);

namespace oracle {
/// With the dense weight, the input as it is, in f64.
at::Tensor quantized_linear(const at::Tensor& x, const QuantizedWeight& weight,
                            const at::Tensor& bias_O = {});
}  // namespace oracle
}  // namespace danlu::ops
