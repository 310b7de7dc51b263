// layers/latent_attention.h: multi-head latent attention (DeepSeek-V2, arXiv:2405.04434 §2.1): keys
// and values of all heads come from one short vector for each token.
#pragma once
#include <optional>

#include "layers/attention.h"

namespace danlu::layers {

/// Training and prompts make keys and values of all heads. A cache keeps of a token its short
/// vector and its rotated key, R = kv_rank + rope_dim numbers, and what comes after a prompt takes
/// the matrix that would widen them into its queries and results instead.
struct LatentAttention : SelfAttention {
  int64_t nope_dim = 0, rope_dim = 0, v_dim = 0, kv_rank = 0;
  Linear q_down;  ///< undefined: q reads the hidden state
  std::optional<Norm> q_norm;
  Linear q;        ///< of each head nope_dim rows, then rope_dim rows
  Linear kv_down;  ///< kv_rank rows, then rope_dim rows of the key that all heads share
  Norm kv_norm;
  Linear kv_up;  ///< of each head nope_dim rows of its key, then v_dim rows of its value

  at::Tensor forward(const at::Tensor& x_NH, const Pass& pass,
                     const Again& again = {}) const override;
  void visit(Visitor& visitor) override;

 private:
  struct Projected {
    at::Tensor q_NQD, latent_NR, key_N1D;  ///< queries and the shared key rotated
  };
  Projected project(const at::Tensor& x_NH, const Pass& pass) const;
  at::Tensor rotated(const at::Tensor& x_NQD, const Pass& pass) const;
  struct Heads {
    at::Tensor k_NQD, v_NQD;
  };
  Heads expanded(const at::Tensor& latent_NR, const at::Tensor& key_N1D, const Pass& pass) const;
  at::Tensor attend_cached(const Projected& projected, const Pass& pass) const;
};

}  // namespace danlu::layers
