#include "ops/norm_head.h"

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/custom_function.h>

#include "ops/autograd.h"
#include "ops/backend.h"
#include "ops/pointwise.h"

namespace danlu::ops {
namespace {

const Backend& norm_head_table(const at::Tensor& x) { return completed_backend(x.device().type()); }

/// Keeps the weight and one number for each row, where ATen's operators would keep the weight wide
/// several times.
class OwnNormHead : public torch::autograd::Function<OwnNormHead> {
 public:
  using List = torch::autograd::variable_list;
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& weight_VH,
                            const MainGradPtr& main) {
    const NormHeadResult result = norm_head_table(weight_VH).norm_head(weight_VH);
    ctx->save_for_backward({weight_VH, result.length_V1});
    ctx->saved_data["main"] = held(main);
    return result.y_VH;
  }
  static List backward(torch::autograd::AutogradContext* ctx, const List& grads) {
    const List saved = ctx->get_saved_variables();
    const at::Tensor grad_VH =
        norm_head_table(saved[0]).norm_head_backward(saved[0], saved[1], grads[0]);
    const auto& main = held_in<MainGradPtr>(ctx->saved_data["main"]);
    if (!takes_grad(main)) return {grad_VH.to(saved[0].scalar_type()), {}};
    add_to(main->sum, grad_VH);
    return {at::Tensor(), {}};
  }
};

}  // namespace

at::Tensor norm_head(const at::Tensor& weight_VH, const MainGradPtr& main) {
  return needs_no_graph({&weight_VH}) ? norm_head_table(weight_VH).norm_head(weight_VH).y_VH
                                      : OwnNormHead::apply(weight_VH, main);
}

}  // namespace danlu::ops
