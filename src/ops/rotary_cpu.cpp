#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include "ops/fused_cpu.h"

namespace danlu::ops::cpu {
namespace rotary_detail {

/// x turned by the table's angles, or back.
at::Tensor turned(const at::Tensor& given_NQD, const at::Tensor& cos_NE, const at::Tensor& sin_NE,
                  bool inverse) {
  const at::Tensor x_NQD = given_NQD.contiguous();
  const at::Tensor y_NQD = at::empty(x_NQD.sizes(), x_NQD.options());
  const int64_t heads = x_NQD.size(1), half = x_NQD.size(2) / 2;
  const int64_t token_bytes = heads * 2 * half * x_NQD.element_size();
  at::parallel_for(0, x_NQD.size(0), 16, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      rotate(element_of(x_NQD), static_cast<size_t>(heads), static_cast<size_t>(half), inverse,
             static_cast<const char*>(x_NQD.data_ptr()) + n * token_bytes,
             cos_NE.data_ptr<float>() + n * half, sin_NE.data_ptr<float>() + n * half,
             static_cast<char*>(y_NQD.data_ptr()) + n * token_bytes);
    }
  });
  return y_NQD;
}

class FusedRotary : public torch::autograd::Function<FusedRotary> {
 public:
  using List = torch::autograd::variable_list;
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x_NQD,
                            const at::Tensor& cos_NE, const at::Tensor& sin_NE) {
    ctx->save_for_backward({cos_NE, sin_NE});
    return turned(x_NQD, cos_NE, sin_NE, false);
  }
  static List backward(torch::autograd::AutogradContext* ctx, const List& grads) {
    const List table = ctx->get_saved_variables();
    return {turned(grads[0], table[0], table[1], true), {}, {}};
  }
};

}  // namespace rotary_detail

at::Tensor rotary(const at::Tensor& x_NQD, const RotaryTable& table) {
  const at::Tensor cos_NE = table.cos_NE.contiguous(), sin_NE = table.sin_NE.contiguous();
  return needs_no_graph({&x_NQD}) ? rotary_detail::turned(x_NQD, cos_NE, sin_NE, false)
                                  : rotary_detail::FusedRotary::apply(x_NQD, cos_NE, sin_NE);
}

}  // namespace danlu::ops::cpu
