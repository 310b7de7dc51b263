// ops/dora.h: rows of a weight at lengths of their own (DoRA, arXiv:2402.09353).
#pragma once
#include <ATen/core/Tensor.h>

#include "ops/main_grad.h"

namespace danlu::ops {

/// Sums of squares of the rows of W + scale B A: [O], f32 (f64 for f64). Shapes  weight_OI [O, I],
/// b_OR [O, R], a_RI [R, I], of one dtype. Without gradient.
at::Tensor adapted_row_squares(const at::Tensor& weight_OI, const at::Tensor& b_OR,
                               const at::Tensor& a_RI, double scale);

/// Column o of y_NO times magnitude_O[o] / sqrt(squares_O[o]), less y_NO where `change`: what a row
/// of that length gives, or how much more that is. A row of zeros has no direction: its magnitude
/// stands for the whole factor.
/// Dtypes  squares as adapted_row_squares gives them; the factor is rounded to y's dtype.
/// Grad    through y and the magnitude, its to `main` as ops::linear's where the table computes it;
///         squares are a constant.
at::Tensor stretched(const at::Tensor& y_NO, const at::Tensor& magnitude_O,
                     const at::Tensor& squares_O, bool change = false,
                     const MainGradPtr& main = {});

}  // namespace danlu::ops
