#include "layers/vision.h"

#include <ATen/core/Tensor.h>

#include <cmath>

#include "layers/recompute.h"
#include "ops/activation.h"
#include "ops/attention.h"
#include "ops/patch_embedding.h"
#include "ops/pointwise.h"
#include "ops/rotary.h"

namespace danlu::layers {

at::Tensor VisionPatches::forward(const at::Tensor& pixels_PX) const {
  return ops::patch_embedding(pixels_PX.to(weight.tensor.scalar_type()), weight.tensor,
                              weight.main_grad);
}

at::Tensor VisionBlock::attention(const at::Tensor& x_PD, const Pass& pass,
                                  const Again& again) const {
  const int64_t p = x_PD.size(0);
  const auto heads =
      ops::parts_of(ops::shaped(qkv.forward(x_PD, pass), {p, 3 * num_heads, head_dim}),
                    {num_heads, num_heads, num_heads}, 1);
  const at::Tensor q_PQD = ops::rotary(heads[0], pass.rotary),
                   k_PQD = ops::rotary(heads[1], pass.rotary);
  const Body core = [segments = sees_frame ? pass.segments : pass.windows,
                     dim = head_dim](const std::vector<at::Tensor>& inputs) {
    ops::AttentionOptions options;
    options.scale = 1.0 / std::sqrt(static_cast<double>(dim));
    return ops::attention(inputs[0], inputs[1], inputs[2], segments, options);
  };
  const std::vector<at::Tensor> inputs{q_PQD, k_PQD, heads[2]};
  const at::Tensor seen_PQD = again.attention_core ? recomputed(core, inputs, {}) : core(inputs);
  const at::Tensor seen_PI = ops::shaped(seen_PQD, {p, num_heads * head_dim});
  return proj.leave(proj.partial(seen_PI, pass, region), region);
}

at::Tensor VisionBlock::mlp(const at::Tensor& x_PD, const std::shared_ptr<const Pass>& pass,
                            const Again& again) const {
  if (!fc1.defined()) return gated.forward(x_PD, pass, again);
  const at::Tensor wide_PF = fc1.forward(x_PD, *pass);
  const Body body = [this, pass](const std::vector<at::Tensor>& inputs) {
    return fc2.partial(ops::activation(inputs[0], ops::Activation::kQuickGelu), *pass, region);
  };
  if (!again.gated_product) return fc2.leave(body({wide_PF}), region);
  return fc2.leave(recomputed(body, {wide_PF}, tensors_of(fc2)), region);
}

at::Tensor VisionBlock::forward(const at::Tensor& x_PD, const std::shared_ptr<const Pass>& pass,
                                const Again& again, const Leaving& leaving) const {
  const auto through = [&](const at::Tensor& given_PD, const Norm& norm, const auto& part) {
    const auto given = ops::shared_by(2, given_PD);
    return ops::add(given[1], part(region.enter(norm.forward(given[0]))));
  };
  const auto scope = leaving.scope(leaving.self_attention);
  const at::Tensor middle_PD =
      through(x_PD, norm1, [&](const at::Tensor& in_PD) { return attention(in_PD, *pass, again); });
  return through(middle_PD, norm2,
                 [&](const at::Tensor& in_PD) { return mlp(in_PD, pass, again); });
}

void VisionBlock::visit(Visitor& visitor) {
  norm1.visit(visitor);
  norm2.visit(visitor);
  qkv.visit(visitor);
  proj.visit(visitor);
  gated.visit(visitor);
  fc1.visit(visitor);
  fc2.visit(visitor);
}

at::Tensor VisionMerger::forward(const at::Tensor& x_PD,
                                 const std::shared_ptr<const Pass>& pass) const {
  const int64_t merged = fc1.weight.spec.shape[1], patches = merged / x_PD.size(1);
  const at::Tensor normed_MX = ops::shaped(norm.forward(x_PD), {x_PD.size(0) / patches, merged});
  const at::Tensor wide_MX = fc1.forward(region.enter(normed_MX), *pass);
  const at::Tensor active_MX = ops::activation(wide_MX, ops::Activation::kGelu);
  return fc2.leave(fc2.partial(active_MX, *pass, region), region);
}

void VisionMerger::visit(Visitor& visitor) {
  norm.visit(visitor);
  fc1.visit(visitor);
  fc2.visit(visitor);
}

}  // namespace danlu::layers
