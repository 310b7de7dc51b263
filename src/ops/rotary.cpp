#include "ops/rotary.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <torch/csrc/autograd/custom_function.h>

#include "device/dtype.h"
#include "ops/autograd.h"
#include "ops/backend.h"
#include "ops/check.h"
#include "ops/pointwise.h"

namespace danlu::ops {
namespace {

void check_rotary(const at::Tensor& x_NQD, const RotaryTable& table) {
  require(x_NQD.dim() == 3, "rotary", "x ", x_NQD.sizes(), " must be [N, heads, D]");
  require(table.cos_NE.dim() == 2 && table.cos_NE.size(0) == x_NQD.size(0) &&
              2 * table.cos_NE.size(1) <= x_NQD.size(2) &&
              table.sin_NE.sizes() == table.cos_NE.sizes(),
          "rotary", "x ", x_NQD.sizes(),
          " must be [N, heads, D] with tables [N, E], 2E at most D; got tables ",
          table.cos_NE.sizes(), " and ", table.sin_NE.sizes());
}

/// [N, heads, E, 2] as [N, heads, 2, E], or back.
at::Tensor with_halves(const at::Tensor& x_NQT, int64_t outer) {
  const int64_t n = x_NQT.size(0), heads = x_NQT.size(1), turning = x_NQT.size(2);
  return x_NQT.reshape({n, heads, outer, turning / outer})
      .transpose(2, 3)
      .reshape({n, heads, turning});
}

/// By the device's kernel, which turns halves of whole heads.
at::Tensor turned(const at::Tensor& x_NQD, const RotaryTable& table, bool inverse) {
  const auto kernel = backend_of(x_NQD.device().type()).rotary;
  const int64_t half = table.cos_NE.size(1), rest = x_NQD.size(2) - 2 * half;
  const RotaryTable halves{table.cos_NE, table.sin_NE};
  if (rest == 0 && !table.is_pairwise) return kernel(x_NQD, halves, inverse);
  at::Tensor part = x_NQD.narrow(2, 0, 2 * half);
  if (table.is_pairwise) part = with_halves(part, half);
  part = kernel(part, halves, inverse);
  if (table.is_pairwise) part = with_halves(part, 2);
  return rest == 0 ? part : joined({part, x_NQD.narrow(2, 2 * half, rest)}, 2);
}

/// Keeps only the table.
class OwnRotary : public torch::autograd::Function<OwnRotary> {
 public:
  using List = torch::autograd::variable_list;
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x_NQD,
                            const at::Tensor& cos_NE, const at::Tensor& sin_NE, bool is_pairwise) {
    ctx->save_for_backward({cos_NE, sin_NE});
    ctx->saved_data["is_pairwise"] = is_pairwise;
    return turned(x_NQD, {cos_NE, sin_NE, is_pairwise}, false);
  }
  static List backward(torch::autograd::AutogradContext* ctx, const List& grads) {
    const List table = ctx->get_saved_variables();
    const bool is_pairwise = ctx->saved_data["is_pairwise"].toBool();
    return {turned(grads[0], {table[0], table[1], is_pairwise}, true), {}, {}, {}};
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
  return needs_no_graph({&x_NQD}) ? turned(x_NQD, {cos_NE, sin_NE, table.is_pairwise}, false)
                                  : OwnRotary::apply(x_NQD, cos_NE, sin_NE, table.is_pairwise);
}

at::Tensor oracle::rotary(const at::Tensor& x_NQD, const RotaryTable& table) {
  check_rotary(x_NQD, table);
  const int64_t half = table.cos_NE.size(1), rest = x_NQD.size(2) - 2 * half;
  const at::Tensor whole = x_NQD.to(device::wide_type(x_NQD.scalar_type()));
  const at::Tensor turning = whole.narrow(2, 0, 2 * half);
  const at::Tensor x = table.is_pairwise ? with_halves(turning, half) : turning;
  const at::Tensor a = x.narrow(2, 0, half), b = x.narrow(2, half, half);
  const at::Tensor cos = table.cos_NE.unsqueeze(1), sin = table.sin_NE.unsqueeze(1);
  const at::Tensor y = at::cat({a * cos - b * sin, b * cos + a * sin}, 2);
  return at::cat({table.is_pairwise ? with_halves(y, 2) : y, whole.narrow(2, 2 * half, rest)}, 2)
      .to(x_NQD.scalar_type());
}

}  // namespace danlu::ops
