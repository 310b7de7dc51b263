#include "ops/rotary.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <torch/csrc/autograd/custom_function.h>

#include "device/dtype.h"
#include "ops/autograd.h"
#include "ops/backend.h"
#include "ops/check.h"

namespace danlu::ops {
namespace {

void check_rotary(const at::Tensor& x_NQD, const RotaryTable& table) {
  require(x_NQD.dim() == 3, "rotary", "x ", x_NQD.sizes(), " must be [N, heads, D]");
  const int64_t half = x_NQD.size(2) / 2;
  require(x_NQD.size(2) == 2 * half && table.cos_NE.size(0) == x_NQD.size(0) &&
              table.cos_NE.size(1) == half && table.sin_NE.sizes() == table.cos_NE.sizes(),
          "rotary", "x ", x_NQD.sizes(),
          " must be [N, heads, D] with even D and tables [N, D/2]; got tables ",
          table.cos_NE.sizes(), " and ", table.sin_NE.sizes());
}

/// Keeps only the table.
class OwnRotary : public torch::autograd::Function<OwnRotary> {
 public:
  using List = torch::autograd::variable_list;
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x_NQD,
                            const at::Tensor& cos_NE, const at::Tensor& sin_NE) {
    ctx->save_for_backward({cos_NE, sin_NE});
    return backend_of(x_NQD.device().type()).rotary(x_NQD, {cos_NE, sin_NE}, false);
  }
  static List backward(torch::autograd::AutogradContext* ctx, const List& grads) {
    const List table = ctx->get_saved_variables();
    return {
        backend_of(grads[0].device().type()).rotary(grads[0], {table[0], table[1]}, true), {}, {}};
  }
};

}  // namespace

RotaryTable rotary_table(const at::Tensor& positions_N, const at::Tensor& inv_freq,
                         double attention_factor) {
  require(
      positions_N.dim() == 1 && positions_N.scalar_type() == at::kLong &&
          (inv_freq.dim() == 1 || (inv_freq.dim() == 2 && inv_freq.size(0) == positions_N.size(0))),
      "rotary", "positions ", positions_N.sizes(), ' ', positions_N.scalar_type(),
      " and frequencies ", inv_freq.sizes(), " must be int64 [N] and [E] or [N, E]");
  return completed_backend(positions_N.device().type())
      .rotary_table(positions_N, inv_freq, attention_factor);
}

at::Tensor rotary(const at::Tensor& x_NQD, const RotaryTable& table) {
  check_rotary(x_NQD, table);
  const Backend* const kernels = fused_for(Work::kRows, x_NQD);
  if (!kernels || !kernels->rotary) return oracle::rotary(x_NQD, table);
  const at::Tensor cos_NE = table.cos_NE.contiguous(), sin_NE = table.sin_NE.contiguous();
  return needs_no_graph({&x_NQD}) ? kernels->rotary(x_NQD, {cos_NE, sin_NE}, false)
                                  : OwnRotary::apply(x_NQD, cos_NE, sin_NE);
}

at::Tensor oracle::rotary(const at::Tensor& x_NQD, const RotaryTable& table) {
  check_rotary(x_NQD, table);
  const int64_t half = x_NQD.size(2) / 2;
  const at::Tensor x = x_NQD.to(device::wide_type(x_NQD.scalar_type()));
  const at::Tensor a = x.narrow(2, 0, half), b = x.narrow(2, half, half);
  const at::Tensor cos = table.cos_NE.unsqueeze(1), sin = table.sin_NE.unsqueeze(1);
  return at::cat({a * cos - b * sin, b * cos + a * sin}, 2).to(x_NQD.scalar_type());
}

}  // namespace danlu::ops
