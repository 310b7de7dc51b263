#include "layers/gated_delta.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/zeros.h>

#include "device/dtype.h"
#include "ops/gated_delta.h"
#include "ops/pointwise.h"
#include "ops/swiglu.h"

namespace danlu::layers {

GatedDeltaAttention::Projected GatedDeltaAttention::project(const at::Tensor& x_NH,
                                                            const Pass& pass) const {
  const int64_t n = x_NH.size(0), heads = sizes.value_heads, groups = sizes.key_heads;
  if (!sizes.joins_inputs) {
    const auto made = forward_each({&inputs, &gate, &step, &decay}, x_NH, pass);
    return {made[0], ops::shaped(made[1], {n, heads, sizes.value_dim}), made[2], made[3]};
  }
  const auto made = forward_each({&joined_inputs, &joined_steps}, x_NH, pass);
  const int64_t each = heads / groups, values = each * sizes.value_dim;
  const auto parts = ops::parts_of(made[0].view({n, groups, 2 * sizes.key_dim + 2 * values}),
                                   {sizes.key_dim, sizes.key_dim, values, values}, 2);
  const auto steps = ops::parts_of(made[1].view({n, groups, 2 * each}), {each, each}, 2);
  const auto flat = [&](const at::Tensor& x) { return x.reshape({n, x.size(1) * x.size(2)}); };
  return {at::cat({flat(parts[0]), flat(parts[1]), flat(parts[2])}, 1),
          parts[3].reshape({n, heads, sizes.value_dim}), flat(steps[0]), flat(steps[1])};
}

at::Tensor GatedDeltaAttention::attend(const Projected& projected, const Pass& pass) const {
  const int64_t n = projected.mixed_NC.size(0), groups = sizes.key_heads;
  const at::ScalarType wide = device::wide_type(projected.mixed_NC.scalar_type());
  const std::vector<int64_t>& starts = pass.segments.q_starts;
  const at::Tensor weight_CK = convolution.tensor.view({sizes.channels(), sizes.kernel});
  const at::Tensor step_NH = at::sigmoid(projected.step_NH.to(wide));
  const at::Tensor decay_NH =
      -decay_rate.tensor.to(wide).exp() *
      at::softplus(projected.decay_NH.to(wide) + decay_bias.tensor.to(wide));
  at::Tensor out_NHV;
  const auto run = [&](const at::Tensor& rows_SKC, const at::Tensor& memory_SHKV) {
    const ops::Convolved mixed =
        ops::causal_convolution(projected.mixed_NC, weight_CK, starts, rows_SKC);
    const auto parts = ops::parts_of(mixed.y_NC, {sizes.keys(), sizes.keys(), sizes.values()}, 1);
    const ops::DeltaResult result = ops::gated_delta(
        parts[0].reshape({n, groups, sizes.key_dim}), parts[1].reshape({n, groups, sizes.key_dim}),
        parts[2].reshape({n, sizes.value_heads, sizes.value_dim}), decay_NH, step_NH, starts,
        memory_SHKV);
    out_NHV = result.out_NHV;
    return ops::DeltaState{mixed.rows_SKC, result.memory_SHKV};
  };
  if (!pass.with_state) {
    run({}, {});
    return out_NHV;
  }
  pass.with_state(layer, [&](const ops::DeltaState& before) {
    if (before.rows_SKC.defined()) return run(before.rows_SKC, before.memory_SHKV);
    const int64_t sequences = static_cast<int64_t>(starts.size()) - 1;
    return run(at::zeros({sequences, sizes.kernel - 1, sizes.channels()},
                         projected.mixed_NC.options().requires_grad(false)),
               at::zeros({sequences, sizes.value_heads, sizes.key_dim, sizes.value_dim},
                         projected.mixed_NC.options().dtype(wide).requires_grad(false)));
  });
  return out_NHV;
}

at::Tensor GatedDeltaAttention::forward(const at::Tensor& x_NH, const Pass& pass,
                                        const Again& /*again*/) const {
  const Projected projected = project(x_NH, pass);
  const at::Tensor out_NHV = attend(projected, pass);
  return leave(ops::swiglu(projected.gate_NHV, norm.forward(out_NHV)), pass);
}

void GatedDeltaAttention::visit(Visitor& visitor) {
  for (Linear* linear : {&joined_inputs, &joined_steps, &inputs, &gate, &step, &decay})
    linear->visit(visitor);
  for (Parameter* parameter : {&convolution, &decay_bias, &decay_rate})
    visitor.parameter(*parameter);
  norm.visit(visitor);
  o.visit(visitor);
}

}  // namespace danlu::layers
