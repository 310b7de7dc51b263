#include "layers/norm.h"

#include <ATen/core/Tensor.h>

#include "ops/layer_norm.h"
#include "ops/rms_norm.h"

namespace danlu::layers {

at::Tensor Norm::forward(const at::Tensor& x) const {
  if (kind == arch::NormKind::kLayer)
    return ops::layer_norm(x, weight.tensor, bias.tensor, eps, {weight.main_grad, bias.main_grad});
  return ops::rms_norm(x, weight.tensor, eps, weight.main_grad,
                       kind == arch::NormKind::kRmsOffset ? ops::NormWeight::kLessThanOne
                                                          : ops::NormWeight::kFactor);
}

}  // namespace danlu::layers
