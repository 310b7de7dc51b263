// ops/head_parts.h: heads whose dimensions come from two tensors, and products with a matrix of
// each head's own.
#pragma once
#include <ATen/core/Tensor.h>

namespace danlu::ops {

/// Each head's dimensions of `first` and then those of `last`, which is for all heads alike if it
/// has one. Shapes  first_NQA [N, Q, A]; last_NTB [N, Q, B] or [N, 1, B]; result [N, Q, A + B].
/// Dtypes  one for both.
/// Grad    through both; that of a shared `last` is summed over the heads in f32 (f64 for f64) and
///         rounded once.
/// Errors  ModelError for shapes and dtypes that do not fit.
at::Tensor beside(const at::Tensor& first_NQA, const at::Tensor& last_NTB);

/// x_NQI[:, q] w_QIO[q] of every head q. Without gradient. Shapes  x [N, Q, I], w [Q, I, O]; result
/// [N, Q, O]. Dtypes  one for both; sums as linear()'s. Errors: ModelError.
at::Tensor products_by_head(const at::Tensor& x_NQI, const at::Tensor& w_QIO);
/// The same with w_QOI[q]^T.
at::Tensor turned_products_by_head(const at::Tensor& x_NQI, const at::Tensor& w_QOI);

}  // namespace danlu::ops
