// layers/norm.h: the norms of a decoder's layers and of a vision tower's.
#pragma once
#include "arch/model_config.h"
#include "layers/module.h"
#include "parallel/parameter.h"

namespace danlu::layers {

struct Norm {
  parallel::Parameter weight;
  double eps = 1e-6;
  arch::NormKind kind = arch::NormKind::kRms;
  parallel::Parameter bias = {};  ///< of kLayer
  void visit(Visitor& visitor) {
    visitor.parameter(weight);
    visitor.parameter(bias);
  }
  /// Shapes  x [..., D], of kLayer [N, D]; result as x.
  at::Tensor forward(const at::Tensor& x) const;
};

}  // namespace danlu::layers
