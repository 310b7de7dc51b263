#include <ATen/core/Tensor.h>

#include "device/parallel.h"
#include "ops/empty_cpu.h"
#include "ops/kernels_cpu.h"

namespace danlu::ops::cpu {
namespace {

constexpr int64_t kGrain = 16 * 1024;

char* element_at(const at::Tensor& x, int64_t index) {
  return static_cast<char*>(x.data_ptr()) + index * x.element_size();
}

/// The kernel's y of each element of both, which are contiguous and alike.
at::Tensor of_both(decltype(add_elements)* kernel, const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor y = empty_cpu(a.sizes(), a.scalar_type());
  device::parallel_for(0, y.numel(), kGrain, [&](int64_t begin, int64_t end) {
    kernel(element_of(y), static_cast<size_t>(end - begin), element_at(a, begin),
           element_at(b, begin), element_at(y, begin));
  });
  return y;
}

}  // namespace

at::Tensor add(const at::Tensor& a, const at::Tensor& b) { return of_both(&add_elements, a, b); }

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) {
  return of_both(&swiglu_forward, gate, up);
}

SwigluGrads swiglu_backward(const at::Tensor& gate, const at::Tensor& up,
                            const at::Tensor& given_dy) {
  const at::Tensor dy = given_dy.contiguous();
  const at::Tensor d_gate = empty_cpu(gate.sizes(), gate.scalar_type());
  const at::Tensor d_up = empty_cpu(gate.sizes(), gate.scalar_type());
  device::parallel_for(0, dy.numel(), kGrain, [&](int64_t begin, int64_t end) {
    cpu::swiglu_backward(element_of(dy), static_cast<size_t>(end - begin), element_at(gate, begin),
                         element_at(up, begin), element_at(dy, begin), element_at(d_gate, begin),
                         element_at(d_up, begin));
  });
  return {d_gate, d_up};
}

}  // namespace danlu::ops::cpu
