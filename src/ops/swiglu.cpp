#include "ops/swiglu.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/silu.h>

#include "device/dtype.h"
#include "ops/check.h"
#include "ops/fused_cpu.h"
#include "ops/kernels.h"

namespace danlu::ops {
namespace swiglu_detail {

void check(const at::Tensor& gate_NF, const at::Tensor& up_NF) {
  require(gate_NF.sizes() == up_NF.sizes(), "swiglu", "gate ", gate_NF.sizes(), " and up ",
          up_NF.sizes(), " must have one shape");
}

}  // namespace swiglu_detail

at::Tensor swiglu(const at::Tensor& gate_NF, const at::Tensor& up_NF) {
  swiglu_detail::check(gate_NF, up_NF);
  if (fused_on_cpu(gate_NF) && gate_NF.scalar_type() == up_NF.scalar_type())
    return cpu::swiglu(gate_NF, up_NF);
  return oracle::swiglu(gate_NF, up_NF);
}

at::Tensor oracle::swiglu(const at::Tensor& gate_NF, const at::Tensor& up_NF) {
  swiglu_detail::check(gate_NF, up_NF);
  // Widened by hand: libtorch 1.13 has no silu for f16 on CPUs.
  const at::ScalarType type = gate_NF.scalar_type();
  return at::silu(gate_NF.to(device::wide_type(type))).to(type) * up_NF;
}

}  // namespace danlu::ops
