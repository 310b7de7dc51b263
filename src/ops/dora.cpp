#include "ops/dora.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/custom_function.h>

#include "ops/autograd.h"
#include "ops/backend.h"
#include "ops/pointwise.h"

namespace danlu::ops {
namespace {

const Backend& dora_table(const at::Tensor& x) { return completed_backend(x.device().type()); }

class OwnStretch : public torch::autograd::Function<OwnStretch> {
 public:
  using List = torch::autograd::variable_list;
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& y_NO,
                            const at::Tensor& magnitude_O, const at::Tensor& squares_O, bool change,
                            const MainGradPtr& main) {
    const auto& table = dora_table(y_NO);
    const at::Tensor factor_O =
        table.stretch_factor(magnitude_O, squares_O, change, y_NO.scalar_type());
    ctx->save_for_backward(
        {magnitude_O.requires_grad() ? y_NO : at::Tensor(), factor_O, squares_O});
    ctx->saved_data["type"] = magnitude_O.scalar_type();
    ctx->saved_data["main"] = held(main);
    return table.scale_columns(y_NO, factor_O);
  }
  static List backward(torch::autograd::AutogradContext* ctx, const List& grads) {
    const List saved = ctx->get_saved_variables();
    const auto& table = dora_table(grads[0]);
    List result(5);
    if (ctx->needs_input_grad(0)) result[0] = table.scale_columns(grads[0], saved[1]);
    if (!ctx->needs_input_grad(1)) return result;
    const at::Tensor grad_O = table.stretch_grad(grads[0], saved[0], saved[2]);
    const auto& main = held_in<MainGradPtr>(ctx->saved_data["main"]);
    if (takes_grad(main)) {
      add_to(main->sum, grad_O);
    } else {
      result[1] = grad_O.to(ctx->saved_data["type"].toScalarType());
    }
    return result;
  }
};

}  // namespace

at::Tensor adapted_row_squares(const at::Tensor& weight_OI, const at::Tensor& b_OR,
                               const at::Tensor& a_RI, double scale) {
  return dora_table(weight_OI).adapted_row_squares(weight_OI, b_OR, a_RI, scale);
}

at::Tensor stretched(const at::Tensor& y_NO, const at::Tensor& magnitude_O,
                     const at::Tensor& squares_O, bool change, const MainGradPtr& main) {
  const auto& given = backend_of(y_NO.device().type());
  const bool is_own = main || given.scale_columns || given.stretch_factor;
  if (is_own && !needs_no_graph({&y_NO, &magnitude_O}))
    return OwnStretch::apply(y_NO, magnitude_O, squares_O, change, main);
  // No graph is needed, or the operators are ATen's, whose graph autograd makes.
  const auto& table = dora_table(y_NO);
  const at::Tensor factor_O =
      table.stretch_factor(magnitude_O, squares_O, change, y_NO.scalar_type());
  return table.scale_columns(y_NO, factor_O);
}

}  // namespace danlu::ops
