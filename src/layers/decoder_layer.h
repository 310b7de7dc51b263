// layers/decoder_layer.h: one pre-norm transformer block.
#pragma once
#include <memory>

#include "layers/attention.h"
#include "layers/feed_forward.h"
#include "layers/norm.h"
#include "layers/offload.h"

namespace danlu::layers {

struct DecoderLayer : Block {
  RmsNorm attention_norm;
  std::unique_ptr<SelfAttention> attention;
  RmsNorm mlp_norm;
  std::unique_ptr<FeedForward> mlp;

  /// h = x + attention(norm x); result h + mlp(norm h).
  at::Tensor forward(const at::Tensor& x_NH, const std::shared_ptr<const Pass>& pass,
                     const Again& again = {}, const Leaving& leaving = {}) const override;
  void visit(Visitor& visitor) override;
};

}  // namespace danlu::layers
