#include "ops/layer_norm.h"

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/custom_function.h>

#include "ops/autograd.h"
#include "ops/backend.h"
#include "ops/check.h"
#include "ops/pointwise.h"

namespace danlu::ops {
namespace {

const Backend& layer_norm_table(const at::Tensor& x) {
  return completed_backend(x.device().type());
}

/// Keeps x and two numbers a row; sums of weight and bias are f32 at least.
class OwnLayerNorm : public torch::autograd::Function<OwnLayerNorm> {
 public:
  using List = torch::autograd::variable_list;
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x_ND,
                            const at::Tensor& weight_D, const at::Tensor& bias_D, double eps,
                            const NormMains& main) {
    const LayerNormResult made = layer_norm_table(x_ND).layer_norm(x_ND, weight_D, bias_D, eps);
    ctx->save_for_backward({x_ND, weight_D, bias_D, made.mean_N1, made.rstd_N1});
    ctx->saved_data["main"] = held(main);
    return made.y_ND;
  }

  static List backward(torch::autograd::AutogradContext* ctx, const List& grads) {
    const List saved = ctx->get_saved_variables();
    const at::Tensor &x_ND = saved[0], &weight_D = saved[1], &bias_D = saved[2];
    const LayerNormWants wants{ctx->needs_input_grad(0), ctx->needs_input_grad(1),
                               ctx->needs_input_grad(2)};
    const LayerNormGrads found = layer_norm_table(x_ND).layer_norm_backward(
        x_ND, weight_D, bias_D, {{}, saved[3], saved[4]}, grads[0], wants);
    const auto& main = held_in<NormMains>(ctx->saved_data["main"]);
    const auto given = [&](const at::Tensor& grad, const MainGradPtr& to) {
      if (!grad.defined()) return grad;
      if (!takes_grad(to)) return grad.to(x_ND.scalar_type());
      add_to(to->sum, grad);
      return at::Tensor();
    };
    return {found.x_ND, given(found.weight_D, main.weight), given(found.bias_D, main.bias), {}, {}};
  }
};

}  // namespace

at::Tensor layer_norm(const at::Tensor& x_ND, const at::Tensor& weight_D, const at::Tensor& bias_D,
                      double eps, const NormMains& main) {
  const int64_t d = x_ND.size(-1);
  require(weight_D.dim() == 1 && weight_D.size(0) == d && bias_D.sizes() == weight_D.sizes(),
          "layer_norm", "weight ", weight_D.sizes(), " and bias ", bias_D.sizes(),
          " must be [D] with D = ", d, ", the last dim of x ", x_ND.sizes());
  return OwnLayerNorm::apply(x_ND, weight_D, bias_D, eps, main);
}

}  // namespace danlu::ops
