// layers/norm.h: RMSNorm with its weight.
#pragma once
#include "layers/parameter.h"
#include "ops/rms_norm.h"

namespace danlu::layers {

struct RmsNorm {
  Parameter weight;
  double eps = 1e-6;
  at::Tensor forward(const at::Tensor& x) const { return ops::rms_norm(x, weight.tensor, eps); }
};

}  // namespace danlu::layers
