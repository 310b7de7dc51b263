// ops/quantized_linear_cpu.h: the CPU's products with weights in blocks. Internal to ops.
#pragma once
#include <span>
#include <vector>

#include "ops/quantized_linear.h"

namespace danlu::ops::cpu {

/// Backend's entries of these names.
std::vector<at::Tensor> block_products(const at::Tensor& x_NI,
                                       std::span<const BlockFactor> factors);
at::Tensor block_rows(const BlockWeight& weight, const at::Tensor& ids_N, at::ScalarType type);

}  // namespace danlu::ops::cpu
