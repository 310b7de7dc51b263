// oneDNN, which libtorch multiplies bf16 with, asked without libtorch between: it adds products to
// f32, libtorch has them rounded to bf16 first.
#include <ATen/core/Tensor.h>

#include <oneapi/dnnl/dnnl.hpp>

#include "device/select.h"
#include "ops/weight_grad.h"

namespace danlu::ops {
namespace weight_grad_detail {

using dnnl::memory;

const dnnl::engine& engine() {
  static const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

/// sum += a b. oneDNN keeps what it has made for these shapes and makes it in microseconds again.
dnnl::matmul product(const memory::desc& a, const memory::desc& b, const memory::desc& sum) {
  dnnl::post_ops adding;
  adding.append_sum(1.0f);
  dnnl::primitive_attr attributes;
  attributes.set_post_ops(adding);
#if DNNL_VERSION_MAJOR < 3
  return dnnl::matmul({{a, b, sum}, attributes, engine()});
#else
  return dnnl::matmul({engine(), a, b, sum, attributes});
#endif
}

/// A matrix [rows, columns] of any strides.
memory::desc description(const at::Tensor& matrix, memory::data_type type) {
  return {{matrix.size(0), matrix.size(1)}, type, {matrix.stride(0), matrix.stride(1)}};
}

}  // namespace weight_grad_detail

bool cpu::has_bf16_sums() { return device::has_matmul(at::kCPU, at::kBFloat16); }

void cpu::add_bf16_weight_grad(const at::Tensor& d_y_NO, const at::Tensor& x_NI,
                               const at::Tensor& sum_OI) {
  using namespace weight_grad_detail;
  if (x_NI.size(0) == 0 || sum_OI.numel() == 0) return;
  const at::Tensor d_y_ON = d_y_NO.t();
  const memory::desc a = description(d_y_ON, memory::data_type::bf16),
                     b = description(x_NI, memory::data_type::bf16),
                     sum = description(sum_OI, memory::data_type::f32);
  dnnl::stream stream(engine());
  product(a, b, sum).execute(stream, {{DNNL_ARG_SRC, {a, engine(), d_y_ON.data_ptr()}},
                                      {DNNL_ARG_WEIGHTS, {b, engine(), x_NI.data_ptr()}},
                                      {DNNL_ARG_DST, {sum, engine(), sum_OI.data_ptr()}}});
  stream.wait();
}

}  // namespace danlu::ops
