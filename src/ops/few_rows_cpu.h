// ops/few_rows_cpu.h: products of a few rows with a dense weight at the speed of memory. Internal
// to ops.
#pragma once
#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "ops/linear.h"

namespace danlu::ops::cpu {

/// Whether few_rows_products is for x [N, I] and this weight: of one type that has row kernels, and
/// at most a few rows.
bool takes_few_rows(const at::Tensor& x_NI, const at::Tensor& weight_OI);

/// x weight^T + bias of each factor (a weight that is not contiguous is copied, a bias of another
/// type converted), summed in f32, rounded once to x's type. The last bits of a row's sums depend
/// on how many rows come with it. Every row of the weight is read from memory once. bf16 is
/// multiplied by AVX512-BF16's dot products where they are (denormal inputs count as 0 there), else
/// widened. Without gradient. Shapes  x [N, I], bias [O] or undefined; results [N, O]. REQUIRES:
/// takes_few_rows of each weight.
std::vector<at::Tensor> few_rows_products(const at::Tensor& x_NI,
                                          std::span<const LinearFactor> factors);

}  // namespace danlu::ops::cpu
