#include "ops/swiglu.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/silu.h>
#include <torch/csrc/autograd/custom_function.h>

#include "device/dtype.h"
#include "ops/autograd.h"
#include "ops/backend.h"
#include "ops/check.h"

namespace danlu::ops {
namespace {

void check_swiglu(const at::Tensor& gate_NF, const at::Tensor& up_NF) {
  require(gate_NF.sizes() == up_NF.sizes(), "swiglu", "gate ", gate_NF.sizes(), " and up ",
          up_NF.sizes(), " must have one shape");
}

/// Keeps gate and up.
class OwnSwiglu : public torch::autograd::Function<OwnSwiglu> {
 public:
  using List = torch::autograd::variable_list;
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& given_gate,
                            const at::Tensor& given_up) {
    const at::Tensor gate = given_gate.contiguous(), up = given_up.contiguous();
    ctx->save_for_backward({gate, up});
    return backend_of(gate.device().type()).swiglu(gate, up);
  }

  static List backward(torch::autograd::AutogradContext* ctx, const List& grads) {
    const List saved = ctx->get_saved_variables();
    const auto& table = backend_of(saved[0].device().type());
    const auto [d_gate, d_up] = table.swiglu_backward(saved[0], saved[1], grads[0]);
    return {d_gate, d_up};
  }
};

}  // namespace

at::Tensor swiglu(const at::Tensor& gate_NF, const at::Tensor& up_NF) {
  check_swiglu(gate_NF, up_NF);
  const Backend* const table = fused_for(Work::kRows, gate_NF);
  if (!table || !table->swiglu || gate_NF.scalar_type() != up_NF.scalar_type())
    return oracle::swiglu(gate_NF, up_NF);
  return needs_no_graph({&gate_NF, &up_NF})
             ? table->swiglu(gate_NF.contiguous(), up_NF.contiguous())
             : OwnSwiglu::apply(gate_NF, up_NF);
}

at::Tensor oracle::swiglu(const at::Tensor& gate_NF, const at::Tensor& up_NF) {
  check_swiglu(gate_NF, up_NF);
  // Widened by hand: libtorch 1.13 has no silu for f16 on CPUs.
  const at::ScalarType type = gate_NF.scalar_type();
  return at::silu(gate_NF.to(device::wide_type(type))).to(type) * up_NF;
}

}  // namespace danlu::ops
