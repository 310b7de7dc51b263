#include "ops/weight_grad.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/mm.h>

#include "ops/backend.h"
#include "ops/linear.h"
#include "ops/pointwise.h"

namespace danlu::ops {

void add_weight_grad(const at::Tensor& d_y_NO, const at::Tensor& x_NI, const at::Tensor& sum_OI,
                     bool is_fresh) {
  at::Tensor sum = sum_OI;
  const Backend* const own = products_for(x_NI);
  if (own && sum.scalar_type() == at::kFloat)
    return own->add_weight_grad(d_y_NO, x_NI, sum, is_fresh);
  if (is_fresh) sum.zero_();
  const bool has_own_type = x_NI.scalar_type() == sum.scalar_type();
  if (has_own_type) {
    sum.addmm_(d_y_NO.t(), x_NI);
  } else if (x_NI.is_cpu()) {
    sum.addmm_(d_y_NO.to(sum.scalar_type()).t(), x_NI.to(sum.scalar_type()));
  } else {
    add_to(sum, at::mm(d_y_NO.t(), x_NI));
  }
}

}  // namespace danlu::ops
