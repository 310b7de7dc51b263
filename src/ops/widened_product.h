// ops/widened_product.h: matrix products of bf16 and f16 on processors without instructions for
// them. Arithmetic is f32; weights are widened a block of rows at a time, or, for a few rows of
// input, inside the dot product, so that no f32 copy of a weight ever exists. Internal to ops.
#pragma once
#include <ATen/core/Tensor.h>

namespace danlu::ops::cpu {

/// True where products of so many rows with a weight [O, I] of this type must go this way.
bool needs_widening(const at::Tensor& weight_OI, int64_t rows);

// Shapes: x [N, I], weight [O, I] contiguous, y and d_y [N, O]. x and d_y: f32, bf16 or f16; the
// result, rounded once, has the type asked for. No gradients: callers are autograd functions.

/// x weight^T + bias; bias [O] may be undefined.
at::Tensor widened_product(const at::Tensor& x_NI, const at::Tensor& weight_OI,
                           const at::Tensor& bias_O, at::ScalarType result);
/// d_y weight.
at::Tensor widened_input_grad(const at::Tensor& d_y_NO, const at::Tensor& weight_OI,
                              at::ScalarType result);
/// d_y^T x, made a block of rows at a time too.
at::Tensor widened_weight_grad(const at::Tensor& d_y_NO, const at::Tensor& x_NI,
                               at::ScalarType result);
/// sum [O, I] (f32) += d_y^T x.
void add_widened_weight_grad(const at::Tensor& d_y_NO, const at::Tensor& x_NI, at::Tensor sum_OI);

}  // namespace danlu::ops::cpu
