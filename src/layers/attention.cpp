#include "layers/attention.h"

#include <ATen/core/Tensor.h>

#include "layers/recompute.h"

namespace danlu::layers {

Attention::Heads Attention::project(const at::Tensor& x_NH, const Pass& pass) const {
  const int64_t n = x_NH.size(0);  // of all rows, inside the region
  if (qkv_layout == arch::QkvLayout::kSeparate) {
    return {q.forward(x_NH, pass).view({n, num_heads, head_dim}),
            k.forward(x_NH, pass).view({n, num_kv_heads, head_dim}),
            v.forward(x_NH, pass).view({n, num_kv_heads, head_dim})};
  }
  const at::Tensor all = qkv.forward(x_NH, pass);
  if (qkv_layout == arch::QkvLayout::kThirds) {
    const auto parts = all.view({n, num_heads + 2 * num_kv_heads, head_dim})
                           .split_with_sizes({num_heads, num_kv_heads, num_kv_heads}, 1);
    return {parts[0], parts[1], parts[2]};
  }
  const int64_t group = num_heads / num_kv_heads;
  const auto parts =
      all.view({n, num_kv_heads, group + 2, head_dim}).split_with_sizes({group, 1, 1}, 2);
  return {parts[0].reshape({n, num_heads, head_dim}), parts[1].squeeze(2), parts[2].squeeze(2)};
}

at::Tensor Attention::forward(const at::Tensor& x_NH, const Pass& pass) const {
  auto [q_NQD, k_NKD, v_NKD] = project(region.enter(x_NH), pass);
  if (q_norm) q_NQD = q_norm->forward(q_NQD);
  if (k_norm) k_NKD = k_norm->forward(k_NKD);
  if (pass.rotary.cos_NE.defined()) {
    q_NQD = ops::rotary(q_NQD, pass.rotary);
    k_NKD = ops::rotary(k_NKD, pass.rotary);
  }
  if (pass.append_kv) std::tie(k_NKD, v_NKD) = pass.append_kv(layer, k_NKD, v_NKD);
  const Body core = [segments = pass.segments,
                     options = options](const std::vector<at::Tensor>& qkv_tensors) {
    return ops::attention(qkv_tensors[0], qkv_tensors[1], qkv_tensors[2], segments, options);
  };
  const std::vector<at::Tensor> inputs{q_NQD, k_NKD, v_NKD};
  const at::Tensor seen_NQD = pass.recompute_inner ? recomputed(core, inputs, {}) : core(inputs);
  const at::Tensor seen_NI = seen_NQD.reshape({seen_NQD.size(0), num_heads * head_dim});
  return o.leave(o.partial(seen_NI, pass, region), region);
}

void Attention::collect(std::vector<at::Tensor>& tensors) const {
  for (const Linear* linear : {&q, &k, &v, &qkv, &o}) {
    if (linear->defined()) linear->collect(tensors);
  }
  if (q_norm) tensors.push_back(q_norm->weight.tensor);
  if (k_norm) tensors.push_back(k_norm->weight.tensor);
}

}  // namespace danlu::layers
