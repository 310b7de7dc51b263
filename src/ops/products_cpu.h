// ops/products_cpu.h: the products of a linear layer on the CPU's own kernels (gemm_cpu.h, and dot
// products for a few rows). Internal to ops.
//
// Shapes  x [N, I], weight [O, I], d_y [N, O], y [N, O]; any strides.
// Dtypes  f32, bf16, f16 in any mixture; two factors of bf16 are multiplied as they are where that
//         is faster (base/cpu_class.h), else what is of 16 bits is widened block by block: no f32
//         copy of a weight ever exists. Sums are f32; a result, of the type asked for, is rounded
//         once.
// No gradients: callers are autograd functions. The number of threads does not change a bit.
#pragma once
#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

#include "ops/linear.h"
#include "ops/nf4.h"

namespace danlu::ops::cpu {

/// x weight^T + bias; bias [O] may be undefined.
at::Tensor product(const at::Tensor& x_NI, const at::Tensor& weight_OI, const at::Tensor& bias_O,
                   at::ScalarType result);
/// Each factor's, in x's type; of few rows in one loop.
std::vector<at::Tensor> products(const at::Tensor& x_NI, std::span<const LinearFactor> factors);
/// d_y weight.
at::Tensor input_grad(const at::Tensor& d_y_NO, const at::Tensor& weight_OI, at::ScalarType result);
/// d_y^T x.
at::Tensor weight_grad(const at::Tensor& d_y_NO, const at::Tensor& x_NI, at::ScalarType result);
/// sum [O, I] (f32) += d_y^T x, or = that where it is fresh; its rows may lie apart.
void add_weight_grad(const at::Tensor& d_y_NO, const at::Tensor& x_NI, const at::Tensor& sum_OI,
                     bool is_fresh);
/// product() and input_grad() of groups of rows, each with a weight of its own, in the rows' type.
at::Tensor grouped_product(const at::Tensor& x_RI, std::span<const at::Tensor> weights_OI,
                           std::span<const int64_t> counts);
at::Tensor grouped_input_grad(const at::Tensor& d_y_RO, std::span<const at::Tensor> weights_OI,
                              std::span<const int64_t> counts);
/// ops/backend.h's entries of these names.
at::Tensor nf4_product(const at::Tensor& x_NI, const Nf4Matrix& weight, const at::Tensor& bias_O);
at::Tensor nf4_input_grad(const at::Tensor& d_y_NO, const Nf4Matrix& weight);
at::Tensor nf4_rows(const Nf4Matrix& weight, int64_t first, int64_t count, at::ScalarType type);
/// y [N, O] (f32) += x weight^T.
void add_product(const at::Tensor& x_NI, const at::Tensor& weight_OI, const at::Tensor& y_NO);

}  // namespace danlu::ops::cpu
