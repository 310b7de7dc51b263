#include "ops/weight_grad.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/mm.h>

#include "device/select.h"
#include "ops/widened_product.h"

namespace danlu::ops {

void add_weight_grad(const at::Tensor& d_y_NO, const at::Tensor& x_NI, const at::Tensor& sum_OI) {
  at::Tensor sum = sum_OI;
  if (x_NI.scalar_type() == sum.scalar_type()) {
    sum.addmm_(d_y_NO.t(), x_NI);
  } else if (x_NI.is_cpu() && x_NI.scalar_type() == at::kBFloat16 && cpu::has_bf16_sums()) {
    cpu::add_bf16_weight_grad(d_y_NO, x_NI, sum);
  } else if (!device::has_matmul(x_NI.device(), x_NI.scalar_type(), x_NI.size(0) * sum.numel())) {
    cpu::add_widened_weight_grad(d_y_NO, x_NI, sum);
  } else {
    sum.add_(at::mm(d_y_NO.t(), x_NI));
  }
}

}  // namespace danlu::ops
