#include "ops/norm_head.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/norm.h>

#include "device/dtype.h"

namespace danlu::ops {

at::Tensor norm_head(const at::Tensor& weight_VH) {
  const at::Tensor wide = weight_VH.to(device::wide_type(weight_VH.scalar_type()));
  const at::Tensor length_V1 = at::norm(wide, 2, {1}, true).clamp_min(1e-12);
  return (wide / length_V1).to(weight_VH.scalar_type());
}

}  // namespace danlu::ops
