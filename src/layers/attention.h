// layers/attention.h: what kinds of self-attention share, and grouped-query attention with rotary
// embedding or ALiBi; over the heads of this rank.
#pragma once
#include <optional>

#include "layers/linear.h"
#include "layers/norm.h"
#include "layers/recompute.h"
#include "ops/attention.h"
#include "parallel/mesh.h"

namespace danlu::layers {

struct SelfAttention {
  int64_t layer = 0;      ///< index in the model, for the cache
  int64_t num_heads = 0;  ///< of this rank
  ops::AttentionOptions options;
  Linear o;
  parallel::Region region{parallel::Group::alone(), false};
  const parallel::Context* context = &parallel::Mesh::single().context();

  virtual ~SelfAttention() = default;
  /// Shapes  x_NH [N, H], inside the region (parallel/region.h); result [N, H], or this rank's rows
  /// of it, outside. N: tokens of this rank of the context axis.
  virtual at::Tensor forward(const at::Tensor& x_NH, const Pass& pass,
                             const Again& again = {}) const = 0;
  virtual void visit(Visitor& visitor) = 0;

 protected:
  /// Attention of a pass without a cache, over the tokens of all ranks of the context axis.
  at::Tensor attend(const at::Tensor& q_NQD, const at::Tensor& k_NKD, const at::Tensor& v_NKD,
                    const Pass& pass, const Again& again) const;
  /// Through o and out of the region. seen: [N, Q, Dv].
  at::Tensor leave(const at::Tensor& seen_NQD, const Pass& pass) const;
};

struct Attention : SelfAttention {
  int64_t num_kv_heads = 0, head_dim = 0;  ///< of this rank
  arch::QkvLayout qkv_layout = arch::QkvLayout::kSeparate;
  Linear q, k, v;                      ///< of kSeparate
  Linear qkv;                          ///< of the other layouts
  std::optional<Norm> q_norm, k_norm;  ///< per head, before rotary
  bool is_rotated = true;              ///< false: without rotary embedding in this layer
  bool has_window_rotary = false;      ///< by Pass::window_rotary
  /// Rotated queries and keys are divided by their rms, with this eps.
  std::optional<double> rotated_norm_eps;
  bool grows_queries = false;  ///< by Pass::query_factors_N
  /// q gives of each head its query and its gate, whose sigmoid multiplies what the head sees.
  bool has_gate = false;

  at::Tensor forward(const at::Tensor& x_NH, const Pass& pass,
                     const Again& again = {}) const override;
  void visit(Visitor& visitor) override;

 private:
  struct Heads {
    at::Tensor q_NQD, k_NKD, v_NKD;
    at::Tensor gate_NQD = {};  ///< of has_gate
  };
  Heads project(const at::Tensor& x_NH, const Pass& pass) const;
};

}  // namespace danlu::layers
