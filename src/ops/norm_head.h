// ops/norm_head.h: the head weight of Baichuan2, each row scaled to length one.
#pragma once
#include <ATen/core/Tensor.h>

#include "ops/main_grad.h"

namespace danlu::ops {

/// row / max(|row|_2, 1e-12). Shapes  weight_VH [V, H]; result as weight, in its dtype.
/// Dtypes  norm and division in f32 (f64 for f64), rounded once. Grad  through the division, or to
/// `main`.
at::Tensor norm_head(const at::Tensor& weight_VH, const MainGradPtr& main = {});

}  // namespace danlu::ops
