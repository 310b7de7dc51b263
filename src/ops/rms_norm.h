// ops/rms_norm.h: root-mean-square normalisation over the last dimension.
#pragma once
#include <ATen/core/Tensor.h>

#include "ops/main_grad.h"

namespace danlu::ops {

/// What the weight of a norm is.
enum class NormWeight {
  kFactor,      ///< of the quotient
  kLessThanOne  ///< the factor less one (Gemma)
};

/// y = x / sqrt(mean(x^2, -1) + eps) * weight
///
/// Shapes  x [..., D]; weight_D [D]; result as x.
/// Dtypes  f32, bf16, f16, f64; the mean and the division are in f32 (f64 for f64), the quotient is
///         rounded to x's dtype before the weight is applied, as Hugging Face does. With
///         kLessThanOne the product is in f32 too and rounded once, as Hugging Face does.
/// Units   eps is added to the mean square, before the root.
/// Grad    through x and weight; the weight's goes to `main` where a kernel makes it and that has a
///         place for it.
/// Errors  ModelError if weight_D is not [D].
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight_D, double eps,
                    const MainGradPtr& main = {}, NormWeight kind = NormWeight::kFactor);

namespace oracle {
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight_D, double eps,
                    NormWeight kind = NormWeight::kFactor);
}
}  // namespace danlu::ops
