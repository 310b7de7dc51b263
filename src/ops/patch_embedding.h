// ops/patch_embedding.h: the first layer of a vision tower: a convolution whose kernel and stride
// are one patch, and so a product.
#pragma once
#include <ATen/core/Tensor.h>

#include "ops/main_grad.h"

namespace danlu::ops {

/// Shapes  pixels_PX [P, X], of the weight's dtype; weight [D, …] of D * X elements, the others in
///         the order of a patch's columns; result [P, D].
/// Grad    through the weight, or to `main`; pixels have none.
/// Errors  ModelError if the sizes do not fit.
at::Tensor patch_embedding(const at::Tensor& pixels_PX, const at::Tensor& weight,
                           const MainGradPtr& main = {});

}  // namespace danlu::ops
