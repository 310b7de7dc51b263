// ops/backend_divergence.h: the composite's entries for divergences (ops/backend.h). Internal to
// ops.
#pragma once
#include <ATen/core/Tensor.h>

#include "ops/backend.h"

namespace danlu::ops {

at::Tensor composite_divergence_sums(const TwoShares& shares);
at::Tensor composite_divergence_grad(const TwoShares& shares, const at::Tensor& own_sum_C1,
                                     const at::Tensor& factor_C1);

}  // namespace danlu::ops
