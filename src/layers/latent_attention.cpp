#include "layers/latent_attention.h"

#include <ATen/core/Tensor.h>

#include "ops/cached_attention.h"
#include "ops/head_parts.h"
#include "ops/pointwise.h"

namespace danlu::layers {

at::Tensor LatentAttention::rotated(const at::Tensor& x_NQD, const Pass& pass) const {
  return pass.rotary.cos_NE.defined() ? ops::rotary(x_NQD, pass.rotary) : x_NQD;
}

LatentAttention::Projected LatentAttention::project(const at::Tensor& x_NH,
                                                    const Pass& pass) const {
  const int64_t n = x_NH.size(0);  // of all rows, inside the region
  const bool is_short = q_down.defined();
  const auto made = forward_each({is_short ? &q_down : &q, &kv_down}, x_NH, pass);
  const at::Tensor q_NI = is_short ? q.forward(q_norm->forward(made[0]), pass) : made[0];
  const auto query = ops::parts_of(ops::shaped(q_NI, {n, num_heads, nope_dim + rope_dim}),
                                   {nope_dim, rope_dim}, 2);
  const auto kept = ops::parts_of(made[1], {kv_rank, rope_dim}, 1);
  return {ops::beside(query[0], rotated(query[1], pass)), kv_norm.forward(kept[0]),
          rotated(kept[1].unsqueeze(1), pass)};
}

LatentAttention::Heads LatentAttention::expanded(const at::Tensor& latent_NR,
                                                 const at::Tensor& key_N1D,
                                                 const Pass& pass) const {
  const at::Tensor wide =
      ops::shaped(kv_up.forward(latent_NR, pass), {latent_NR.size(0), num_heads, nope_dim + v_dim});
  const auto parts = ops::parts_of(wide, {nope_dim, v_dim}, 2);
  // A copy, so that not all of `wide` is kept for the values.
  return {ops::beside(parts[0], key_N1D), parts[1].contiguous()};
}

at::Tensor LatentAttention::attend_cached(const Projected& projected, const Pass& pass) const {
  at::Tensor weight_QOI;  // made when it is first needed
  const auto weight = [&](int64_t first, int64_t count) {
    if (!weight_QOI.defined())
      weight_QOI = kv_up.whole_weight(pass).view({num_heads, nope_dim + v_dim, kv_rank});
    return weight_QOI.narrow(1, first, count);
  };
  ops::LatentQueries queries;
  queries.q_NQD = projected.q_NQD;
  queries.rows_NR = ops::beside(projected.latent_NR.unsqueeze(1), projected.key_N1D).squeeze(1);
  queries.expand = [&](const at::Tensor& rows_MR) {
    const Heads heads = expanded(rows_MR.narrow(1, 0, kv_rank).contiguous(),
                                 rows_MR.narrow(1, kv_rank, rope_dim).unsqueeze(1), pass);
    return ops::LatentQueries::Expanded{heads.k_NQD, heads.v_NQD};
  };
  queries.absorb = [&](const at::Tensor& q_NQD) {
    return ops::beside(ops::products_by_head(q_NQD.narrow(2, 0, nope_dim), weight(0, nope_dim)),
                       q_NQD.narrow(2, nope_dim, rope_dim));
  };
  queries.values = [&](const at::Tensor& seen_NQR) {
    return ops::turned_products_by_head(seen_NQR.narrow(2, 0, kv_rank), weight(nope_dim, v_dim));
  };
  return pass.attend_latent(layer, queries, options);
}

at::Tensor LatentAttention::forward(const at::Tensor& x_NH, const Pass& pass,
                                    const Again& again) const {
  const Projected projected = project(x_NH, pass);
  if (pass.attend_latent) return leave(attend_cached(projected, pass), pass);
  const Heads heads = expanded(projected.latent_NR, projected.key_N1D, pass);
  return leave(attend(projected.q_NQD, heads.k_NQD, heads.v_NQD, pass, again), pass);
}

void LatentAttention::visit(Visitor& visitor) {
  q_down.visit(visitor);
  if (q_norm) q_norm->visit(visitor);
  for (Linear* linear : {&q, &kv_down}) linear->visit(visitor);
  kv_norm.visit(visitor);
  for (Linear* linear : {&kv_up, &o}) linear->visit(visitor);
}

}  // namespace danlu::layers
