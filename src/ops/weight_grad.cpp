#include "ops/weight_grad.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/mm.h>

#include "device/select.h"
#include "ops/widened_product.h"

namespace danlu::ops {
namespace weight_grad_detail {

/// Vectors are not oneDNN's: 3.6 takes the stride of a dimension of one for the other's, and
/// answers wrong.
bool suits_one_dnn(const at::Tensor& x_NI, const at::Tensor& sum_OI) {
  return x_NI.is_cpu() && x_NI.scalar_type() == at::kBFloat16 && cpu::has_bf16_sums() &&
         sum_OI.size(0) > 1 && sum_OI.size(1) > 1;
}

}  // namespace weight_grad_detail

void add_weight_grad(const at::Tensor& d_y_NO, const at::Tensor& x_NI, const at::Tensor& sum_OI) {
  at::Tensor sum = sum_OI;
  if (x_NI.scalar_type() == sum.scalar_type()) {
    sum.addmm_(d_y_NO.t(), x_NI);
  } else if (weight_grad_detail::suits_one_dnn(x_NI, sum)) {
    cpu::add_bf16_weight_grad(d_y_NO, x_NI, sum);
  } else if (x_NI.is_cpu() &&
             (cpu::has_bf16_sums() ||
              !device::has_matmul(x_NI.device(), x_NI.scalar_type(), x_NI.size(0) * sum.numel()))) {
    cpu::add_widened_weight_grad(d_y_NO, x_NI, sum);
  } else {
    sum.add_(at::mm(d_y_NO.t(), x_NI));
  }
}

}  // namespace danlu::ops
