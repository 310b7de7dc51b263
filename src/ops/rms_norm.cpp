#include "ops/rms_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/ones.h>
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

/// What the kernel is given: of a weight that lacks one, everything in f32.
struct NormFactors {
  at::Tensor x, weight_D;
};
NormFactors factors(const at::Tensor& x, const at::Tensor& weight_D, NormWeight kind) {
  if (kind == NormWeight::kFactor) return {x.contiguous(), weight_D.contiguous()};
  const at::Tensor factor_D = at::ones(weight_D.sizes(), weight_D.options().dtype(at::kFloat));
  add_into(factor_D, factor_D, weight_D.to(at::kFloat));
  return {x.to(at::kFloat).contiguous(), factor_D};
}

/// Keeps x and one f32 per row for backward.
class OwnRmsNorm : public torch::autograd::Function<OwnRmsNorm> {
 public:
  using List = torch::autograd::variable_list;
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& given,
                            const at::Tensor& given_weight, double eps, const MainGradPtr& main,
                            NormWeight kind) {
    const at::Tensor x = given.contiguous(), weight_D = given_weight.contiguous();
    const NormFactors of = factors(x, weight_D, kind);
    const NormResult result = norm_table(x).rms_norm(of.x, of.weight_D, eps);
    ctx->save_for_backward({x, weight_D, result.rstd});
    ctx->saved_data["main"] = held(main);
    ctx->saved_data["kind"] = static_cast<int64_t>(kind);
    return result.y.to(x.scalar_type());
  }

  static List backward(torch::autograd::AutogradContext* ctx, const List& grads) {
    const List saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weight_D = saved[1], &rstd = saved[2];
    const auto kind = static_cast<NormWeight>(ctx->saved_data["kind"].toInt());
    const NormFactors of = factors(x, weight_D, kind);
    NormGrads found =
        norm_table(x).rms_norm_backward(of.x, of.weight_D, rstd, grads[0].to(of.x.scalar_type()),
                                        ctx->needs_input_grad(0), ctx->needs_input_grad(1));
    if (found.x.defined()) found.x = found.x.to(x.scalar_type());
    if (found.weight_D.defined()) {
      const auto& main = held_in<MainGradPtr>(ctx->saved_data["main"]);
      if (takes_grad(main)) {
        add_to(main->sum, found.weight_D);
        found.weight_D = at::Tensor();
      } else {
        found.weight_D = found.weight_D.to(weight_D.scalar_type());
      }
    }
    return {found.x, found.weight_D, {}, {}, {}};
  }
};

}  // namespace

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight_D, double eps,
                    const MainGradPtr& main, NormWeight kind) {
  check_norm(x, weight_D);
  const Backend* const table = fused_for(Work::kRows, x);
  if (!table || !table->rms_norm || x.scalar_type() != weight_D.scalar_type())
    return oracle::rms_norm(x, weight_D, eps, kind);
  if (!needs_no_graph({&x, &weight_D})) return OwnRmsNorm::apply(x, weight_D, eps, main, kind);
  const NormFactors of = factors(x, weight_D, kind);
  return table->rms_norm(of.x, of.weight_D, eps).y.to(x.scalar_type());
}

at::Tensor oracle::rms_norm(const at::Tensor& x, const at::Tensor& weight_D, double eps,
                            NormWeight kind) {
  check_norm(x, weight_D);
  const at::Tensor wide = x.to(device::wide_type(x.scalar_type()));
  const at::Tensor rstd = at::rsqrt(at::mean(wide.square(), -1, true) + eps);
  if (kind == NormWeight::kLessThanOne)
    return (wide * rstd * (weight_D.to(wide.scalar_type()) + 1)).to(x.scalar_type());
  return (wide * rstd).to(x.scalar_type()) * weight_D;
}

}  // namespace danlu::ops
