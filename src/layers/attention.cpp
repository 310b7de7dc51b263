#include "layers/attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/ones.h>

#include "ops/activation.h"
#include "ops/pointwise.h"
#include "ops/rms_norm.h"

namespace danlu::layers {
namespace {

/// Over the tokens of all ranks of the context axis. Rows beyond this rank's tokens, there to
/// divide over the tensor axis, meet nothing and become 0.
at::Tensor attend_over_ranks(const parallel::Context& context, const std::vector<at::Tensor>& qkv,
                             const ops::Segments& segments, const ops::AttentionOptions& options) {
  if (context.is_alone()) return ops::attention(qkv[0], qkv[1], qkv[2], segments, options);
  const int64_t tokens =
      settings::count_context_rows(context.shape(), context.rank(), segments.q_starts.back());
  const int64_t more = qkv[0].size(0) - tokens;
  const at::Tensor seen =
      context.attention(qkv[0].narrow(0, 0, tokens), qkv[1].narrow(0, 0, tokens),
                        qkv[2].narrow(0, 0, tokens), segments, options);
  return more > 0 ? at::constant_pad_nd(seen, {0, 0, 0, 0, 0, more}) : seen;
}

}  // namespace

Attention::Heads Attention::project(const at::Tensor& x_NH, const Pass& pass) const {
  const int64_t n = x_NH.size(0);  // of all rows, inside the region
  if (qkv_layout == arch::QkvLayout::kSeparate) {
    const auto parts = forward_each({&q, &k, &v}, x_NH, pass);
    if (has_gate) {
      const auto query =
          ops::parts_of(parts[0].view({n, num_heads, 2 * head_dim}), {head_dim, head_dim}, 2);
      return {query[0], ops::shaped(parts[1], {n, num_kv_heads, head_dim}),
              ops::shaped(parts[2], {n, num_kv_heads, head_dim}), query[1]};
    }
    return {ops::shaped(parts[0], {n, num_heads, head_dim}),
            ops::shaped(parts[1], {n, num_kv_heads, head_dim}),
            ops::shaped(parts[2], {n, num_kv_heads, head_dim})};
  }
  const at::Tensor all = qkv.forward(x_NH, pass);
  if (qkv_layout != arch::QkvLayout::kInterleaved) {
    const auto parts = ops::parts_of(all.view({n, num_heads + 2 * num_kv_heads, head_dim}),
                                     {num_heads, num_kv_heads, num_kv_heads}, 1);
    return {parts[0], parts[1], parts[2]};
  }
  const int64_t group = num_heads / num_kv_heads;
  const auto parts =
      ops::parts_of(all.view({n, num_kv_heads, group + 2, head_dim}), {group, 1, 1}, 2);
  return {parts[0].reshape({n, num_heads, head_dim}), parts[1].squeeze(2), parts[2].squeeze(2)};
}

at::Tensor Attention::forward(const at::Tensor& x_NH, const Pass& pass, const Again& again) const {
  auto [q_NQD, k_NKD, v_NKD, gate_NQD] = project(x_NH, pass);
  if (q_norm) q_NQD = q_norm->forward(q_NQD);
  if (k_norm) k_NKD = k_norm->forward(k_NKD);
  const ops::RotaryTable& rotary = has_window_rotary ? pass.window_rotary : pass.rotary;
  if (is_rotated && rotary.cos_NE.defined()) {
    q_NQD = ops::rotary(q_NQD, rotary);
    k_NKD = ops::rotary(k_NKD, rotary);
  }
  if (rotated_norm_eps) {
    const at::Tensor ones_D = at::ones({head_dim}, q_NQD.options().requires_grad(false));
    q_NQD = ops::rms_norm(q_NQD, ones_D, *rotated_norm_eps);
    k_NKD = ops::rms_norm(k_NKD, ones_D, *rotated_norm_eps);
  }
  if (grows_queries) {
    const at::Tensor rows_NI = ops::shaped(q_NQD, {q_NQD.size(0), num_heads * head_dim});
    q_NQD = ops::shaped(ops::scale_rows(rows_NI, pass.query_factors_N), q_NQD.sizes());
  }
  const at::Tensor seen_NQD = pass.attend ? pass.attend(layer, q_NQD, k_NKD, v_NKD, options)
                                          : attend(q_NQD, k_NKD, v_NKD, pass, again);
  return leave(has_gate ? seen_NQD * ops::sigmoid(gate_NQD) : seen_NQD, pass);
}

at::Tensor SelfAttention::attend(const at::Tensor& q_NQD, const at::Tensor& k_NKD,
                                 const at::Tensor& v_NKD, const Pass& pass,
                                 const Again& again) const {
  const Body core = [segments = pass.segments, options = options,
                     context = context](const std::vector<at::Tensor>& qkv) {
    return attend_over_ranks(*context, qkv, segments, options);
  };
  const std::vector<at::Tensor> inputs{q_NQD, k_NKD, v_NKD};
  return again.attention_core ? recomputed(core, inputs, {}) : core(inputs);
}

at::Tensor SelfAttention::leave(const at::Tensor& seen_NQD, const Pass& pass) const {
  const at::Tensor seen_NI =
      ops::shaped(seen_NQD, {seen_NQD.size(0), num_heads * seen_NQD.size(2)});
  return o.leave(o.partial(seen_NI, pass, region), region);
}

void Attention::visit(Visitor& visitor) {
  for (Linear* linear : {&q, &k, &v, &qkv}) linear->visit(visitor);
  if (q_norm) q_norm->visit(visitor);
  if (k_norm) k_norm->visit(visitor);
  visitor.constant(options.alibi_slopes_Q);
  o.visit(visitor);
}

}  // namespace danlu::layers
