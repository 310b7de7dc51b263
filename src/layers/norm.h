// layers/norm.h: RMSNorm with its weight.
#pragma once
#include "layers/module.h"
#include "ops/rms_norm.h"
#include "parallel/parameter.h"

namespace danlu::layers {

struct RmsNorm {
  parallel::Parameter weight;
  double eps = 1e-6;
  void visit(Visitor& visitor) { visitor.parameter(weight); }
  at::Tensor forward(const at::Tensor& x) const {
    return ops::rms_norm(x, weight.tensor, eps, weight.main_grad);
  }
};

}  // namespace danlu::layers
