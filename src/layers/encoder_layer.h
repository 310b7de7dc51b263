// layers/encoder_layer.h: one transformer block whose norms stand after the sums, as in BERT.
#pragma once
#include <memory>

#include "layers/attention.h"
#include "layers/feed_forward.h"
#include "layers/norm.h"
#include "layers/offload.h"

namespace danlu::layers {

struct EncoderLayer : Block {
  std::unique_ptr<SelfAttention> attention;
  Norm attention_norm;
  std::unique_ptr<FeedForward> mlp;
  Norm mlp_norm;

  /// h = norm(x + attention(x)); result norm(h + mlp(h)). Source: Attention Is All You Need,
  /// arXiv:1706.03762 §3.1. REQUIRES: not under sequence parallelism.
  at::Tensor forward(const at::Tensor& x_NH, const std::shared_ptr<const Pass>& pass,
                     const Again& again = {}, const Leaving& leaving = {}) const override;
  void visit(Visitor& visitor) override;
};

}  // namespace danlu::layers
