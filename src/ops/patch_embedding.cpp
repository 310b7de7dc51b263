#include "ops/patch_embedding.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include "device/dtype.h"
#include "ops/autograd.h"
#include "ops/check.h"
#include "ops/linear.h"
#include "ops/weight_grad.h"

namespace danlu::ops {
namespace {

at::Tensor as_matrix(const at::Tensor& weight) {
  return weight.reshape({weight.size(0), weight.numel() / weight.size(0)});
}

class OwnPatches : public torch::autograd::Function<OwnPatches> {
 public:
  using List = torch::autograd::variable_list;
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& pixels_PX,
                            const at::Tensor& weight, const MainGradPtr& main) {
    ctx->save_for_backward({pixels_PX, weight});
    ctx->saved_data["main"] = held(main);
    return linear(pixels_PX, as_matrix(weight), at::Tensor());
  }

  static List backward(torch::autograd::AutogradContext* ctx, const List& grads) {
    const List saved = ctx->get_saved_variables();
    const at::Tensor &pixels_PX = saved[0], &weight = saved[1];
    const auto& main = held_in<MainGradPtr>(ctx->saved_data["main"]);
    if (has_place(main)) {
      const bool is_fresh = is_first(main);
      add_weight_grad(grads[0], pixels_PX, as_matrix(main->sum), is_fresh);
      return {at::Tensor(), at::Tensor(), at::Tensor()};
    }
    const at::Tensor sum =
        at::zeros(weight.sizes(), weight.options().dtype(device::wide_type(weight.scalar_type())));
    add_weight_grad(grads[0], pixels_PX, as_matrix(sum));
    return {at::Tensor(), sum.to(weight.scalar_type()), at::Tensor()};
  }
};

}  // namespace

at::Tensor patch_embedding(const at::Tensor& pixels_PX, const at::Tensor& weight,
                           const MainGradPtr& main) {
  require(pixels_PX.dim() == 2 && pixels_PX.size(1) * weight.size(0) == weight.numel() &&
              pixels_PX.scalar_type() == weight.scalar_type(),
          "patch_embedding", "patches ", pixels_PX.sizes(), " do not fit a weight ",
          weight.sizes());
  if (needs_no_graph({&weight})) return linear(pixels_PX, as_matrix(weight), at::Tensor());
  return OwnPatches::apply(pixels_PX, weight, main);
}

}  // namespace danlu::ops
