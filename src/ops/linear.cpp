#include "ops/linear.h"

#include <ATen/ATen.h>

#include "device/select.h"
#include "ops/check.h"

namespace danlu::ops {

at::Tensor linear(const at::Tensor& x_NI, const at::Tensor& weight_OI, const at::Tensor& bias_O) {
  require(weight_OI.dim() == 2 && x_NI.size(-1) == weight_OI.size(1), "linear", "x ", x_NI.sizes(),
          " must end in I of the weight [O, I] ", weight_OI.sizes());
  require(!bias_O.defined() || (bias_O.dim() == 1 && bias_O.size(0) == weight_OI.size(0)), "linear",
          "bias must be [O] with O = ", weight_OI.size(0));
  require(x_NI.scalar_type() == weight_OI.scalar_type(), "linear", "x is ", x_NI.scalar_type(),
          ", the weight ", weight_OI.scalar_type(), "; they must be equal");
  if (!device::has_matmul(x_NI.device(), x_NI.scalar_type())) {
    const at::Tensor bias = bias_O.defined() ? bias_O.to(at::kFloat) : bias_O;
    return at::linear(x_NI.to(at::kFloat), weight_OI.to(at::kFloat), bias).to(x_NI.scalar_type());
  }
  return at::linear(x_NI, weight_OI, bias_O);
}

at::Tensor batched_product(const at::Tensor& a_BNK, const at::Tensor& b_BKM) {
  if (device::has_matmul(a_BNK.device(), a_BNK.scalar_type())) return at::bmm(a_BNK, b_BKM);
  return at::bmm(a_BNK.to(at::kFloat), b_BKM.to(at::kFloat)).to(a_BNK.scalar_type());
}

}  // namespace danlu::ops
