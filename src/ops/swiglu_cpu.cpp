#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include "device/parallel.h"
#include "ops/kernels_cpu.h"

namespace danlu::ops::cpu {
namespace swiglu_detail {

constexpr int64_t kGrain = 16 * 1024;

char* element_at(const at::Tensor& x, int64_t index) {
  return static_cast<char*>(x.data_ptr()) + index * x.element_size();
}

}  // namespace swiglu_detail

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) {
  using namespace swiglu_detail;
  const at::Tensor y = at::empty(gate.sizes(), gate.options());
  device::parallel_for(0, y.numel(), kGrain, [&](int64_t begin, int64_t end) {
    swiglu_forward(element_of(y), static_cast<size_t>(end - begin), element_at(gate, begin),
                   element_at(up, begin), element_at(y, begin));
  });
  return y;
}

SwigluGrads swiglu_backward(const at::Tensor& gate, const at::Tensor& up,
                            const at::Tensor& given_dy) {
  using namespace swiglu_detail;
  const at::Tensor dy = given_dy.contiguous();
  const at::Tensor d_gate = at::empty(gate.sizes(), gate.options());
  const at::Tensor d_up = at::empty(gate.sizes(), gate.options());
  device::parallel_for(0, dy.numel(), kGrain, [&](int64_t begin, int64_t end) {
    cpu::swiglu_backward(element_of(dy), static_cast<size_t>(end - begin), element_at(gate, begin),
                         element_at(up, begin), element_at(dy, begin), element_at(d_gate, begin),
                         element_at(d_up, begin));
  });
  return {d_gate, d_up};
}

}  // namespace danlu::ops::cpu
