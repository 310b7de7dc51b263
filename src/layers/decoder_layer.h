// layers/decoder_layer.h: one pre-norm transformer block.
#pragma once
#include <memory>
#include <optional>

#include "layers/attention.h"
#include "layers/feed_forward.h"
#include "layers/norm.h"
#include "layers/offload.h"

namespace danlu::layers {

struct DecoderLayer : Block {
  Norm attention_norm;
  std::unique_ptr<SelfAttention> attention;
  std::optional<Norm> attention_post_norm;
  Norm mlp_norm;
  std::unique_ptr<FeedForward> mlp;
  std::optional<Norm> mlp_post_norm;
  double residual_scale = 1.0;  ///< of what attention and MLP add

  /// h = x + attention(norm x); result h + mlp(norm h). What is added goes through the post norms
  /// and is scaled before.
  at::Tensor forward(const at::Tensor& x_NH, const std::shared_ptr<const Pass>& pass,
                     const Again& again = {}, const Leaving& leaving = {}) const override;
  void visit(Visitor& visitor) override;
};

}  // namespace danlu::layers
