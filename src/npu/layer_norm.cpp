// Layer norms.
#include <ATen/core/Tensor.h>

#include "npu/arithmetic.h"
#include "npu/operators.h"
#include "npu/table.h"

namespace danlu::npu {

ops::LayerNormResult layer_norm(const at::Tensor& x_ND, const at::Tensor& weight_D,
                                const at::Tensor& bias_D, double eps) {
  const int64_t n = x_ND.size(0), d = x_ND.size(1);
  const ops::LayerNormResult made{fresh(x_ND, x_ND.sizes(), x_ND.scalar_type()),
                                  fresh(x_ND, {n, 1}, at::kFloat), fresh(x_ND, {n, 1}, at::kFloat)};
  if (x_ND.numel() == 0) return made;
  aclnn::layer_norm(View(x_ND), Numbers{d}, View(wide(weight_D)), View(wide(bias_D)), eps,
                    View(made.y_ND), View(made.mean_N1), View(made.rstd_N1));
  return made;
}

ops::LayerNormGrads layer_norm_backward(const at::Tensor& x_ND, const at::Tensor& weight_D,
                                        const at::Tensor& bias_D, const ops::LayerNormResult& kept,
                                        const at::Tensor& dy_ND, const ops::LayerNormWants& wants) {
  const auto if_wanted = [](bool wanted, const at::Tensor& x) { return wanted ? x : at::Tensor(); };
  // Gradients of weight and bias are of the weight's type: of f32 they lose nothing.
  const at::Tensor wide_D = wide(weight_D), d_x = fresh(x_ND, x_ND.sizes(), x_ND.scalar_type()),
                   d_weight = fresh(wide_D), d_bias = fresh(wide_D);
  if (x_ND.numel() == 0) {
    d_weight.zero_();
    d_bias.zero_();
  } else {
    aclnn::layer_norm_backward(View(dy_ND), View(x_ND), Numbers{x_ND.size(1)}, View(kept.mean_N1),
                               View(kept.rstd_N1), View(wide_D), View(wide(bias_D)),
                               Flags{wants.x, wants.weight, wants.bias}, View(d_x), View(d_weight),
                               View(d_bias));
  }
  return {if_wanted(wants.x, d_x), if_wanted(wants.weight, d_weight),
          if_wanted(wants.bias, d_bias)};
}

}  // namespace danlu::npu
