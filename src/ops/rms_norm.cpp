#include "ops/rms_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/rsqrt.h>
#include <torch/csrc/autograd/custom_function.h>

#include "device/dtype.h"
#include "ops/autograd.h"
#include "ops/backend.h"
#include "ops/check.h"
#include "ops/pointwise.h"

namespace danlu::ops {
namespace {

void check_norm(const at::Tensor& x, const at::Tensor& weight_D) {
  require(weight_D.dim() == 1 && weight_D.size(0) == x.size(-1), "rms_norm", "weight ",
          weight_D.sizes(), " must be [D] with D = ", x.size(-1), ", the last dim of x ",
          x.sizes());
}

const Backend& norm_table(const at::Tensor& x) { return backend_of(x.device().type()); }

/// Keeps x and one f32 per row for backward.
class OwnRmsNorm : public torch::autograd::Function<OwnRmsNorm> {
 public:
  using List = torch::autograd::variable_list;
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& given,
                            const at::Tensor& given_weight, double eps, const MainGradPtr& main) {
    const at::Tensor x = given.contiguous(), weight_D = given_weight.contiguous();
    const NormResult result = norm_table(x).rms_norm(x, weight_D, eps);
    ctx->save_for_backward({x, weight_D, result.rstd});
    ctx->saved_data["main"] = held(main);
    return result.y;
  }

  static List backward(torch::autograd::AutogradContext* ctx, const List& grads) {
    const List saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weight_D = saved[1], &rstd = saved[2];
    NormGrads found = norm_table(x).rms_norm_backward(
        x, weight_D, rstd, grads[0], ctx->needs_input_grad(0), ctx->needs_input_grad(1));
    if (found.weight_D.defined()) {
      const auto& main = held_in<MainGradPtr>(ctx->saved_data["main"]);
      if (takes_grad(main)) {
        add_to(main->sum, found.weight_D);
        found.weight_D = at::Tensor();
      } else {
        found.weight_D = found.weight_D.to(weight_D.scalar_type());
      }
    }
    return {found.x, found.weight_D, {}, {}};
  }
};

}  // namespace

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight_D, double eps,
                    const MainGradPtr& main) {
  check_norm(x, weight_D);
  const Backend* const table = fused_for(Work::kRows, x);
  if (!table || !table->rms_norm || x.scalar_type() != weight_D.scalar_type())
    return oracle::rms_norm(x, weight_D, eps);
  if (needs_no_graph({&x, &weight_D}))
    return table->rms_norm(x.contiguous(), weight_D.contiguous(), eps).y;
  return OwnRmsNorm::apply(x, weight_D, eps, main);
}

at::Tensor oracle::rms_norm(const at::Tensor& x, const at::Tensor& weight_D, double eps) {
  check_norm(x, weight_D);
  const at::Tensor wide = x.to(device::wide_type(x.scalar_type()));
  const at::Tensor rstd = at::rsqrt(at::mean(wide.square(), -1, true) + eps);
  return (wide * rstd).to(x.scalar_type()) * weight_D;
}

}  // namespace danlu::ops
