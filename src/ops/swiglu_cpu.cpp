#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include "ops/fused_cpu.h"

namespace danlu::ops::cpu {
namespace swiglu_detail {

constexpr int64_t kGrain = 16 * 1024;

char* element_at(const at::Tensor& x, int64_t index) {
  return static_cast<char*>(x.data_ptr()) + index * x.element_size();
}

at::Tensor gated(const at::Tensor& gate, const at::Tensor& up) {
  const at::Tensor y = at::empty(gate.sizes(), gate.options());
  at::parallel_for(0, y.numel(), kGrain, [&](int64_t begin, int64_t end) {
    swiglu_forward(element_of(y), static_cast<size_t>(end - begin), element_at(gate, begin),
                   element_at(up, begin), element_at(y, begin));
  });
  return y;
}

class FusedSwiglu : public torch::autograd::Function<FusedSwiglu> {
 public:
  using List = torch::autograd::variable_list;
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& given_gate,
                            const at::Tensor& given_up) {
    const at::Tensor gate = given_gate.contiguous(), up = given_up.contiguous();
    const at::Tensor y = gated(gate, up);
    ctx->save_for_backward({gate, up});
    return y;
  }

  static List backward(torch::autograd::AutogradContext* ctx, const List& grads) {
    const List saved = ctx->get_saved_variables();
    const at::Tensor &gate = saved[0], &up = saved[1];
    const at::Tensor dy = grads[0].contiguous();
    const at::Tensor d_gate = at::empty(gate.sizes(), gate.options());
    const at::Tensor d_up = at::empty(gate.sizes(), gate.options());
    at::parallel_for(0, dy.numel(), kGrain, [&](int64_t begin, int64_t end) {
      swiglu_backward(element_of(dy), static_cast<size_t>(end - begin), element_at(gate, begin),
                      element_at(up, begin), element_at(dy, begin), element_at(d_gate, begin),
                      element_at(d_up, begin));
    });
    return {d_gate, d_up};
  }
};

}  // namespace swiglu_detail

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) {
  return needs_no_graph({&gate, &up}) ? swiglu_detail::gated(gate.contiguous(), up.contiguous())
                                      : swiglu_detail::FusedSwiglu::apply(gate, up);
}

}  // namespace danlu::ops::cpu
