#include "layers/encoder_layer.h"

#include <ATen/core/Tensor.h>

#include "layers/saved_tensors.h"
#include "ops/pointwise.h"

namespace danlu::layers {

at::Tensor EncoderLayer::forward(const at::Tensor& x_NH, const std::shared_ptr<const Pass>& pass,
                                 const Again& again, const Leaving& leaving) const {
  const auto normed_sum = [&](const Norm& norm, const at::Tensor& x, const at::Tensor& more,
                              bool leaves) {
    const auto scope = leaving.scope(leaves);
    return norm.forward(ops::add(x, more));
  };
  const auto given = ops::shared_by(2, x_NH);
  at::Tensor seen_NH;
  {
    const auto scope = leaving.scope(leaving.self_attention);
    seen_NH = attention->forward(attention->region.enter(given[0]), *pass, again);
  }
  const auto middle =
      ops::shared_by(2, normed_sum(attention_norm, given[1], seen_NH, leaving.input_norm));
  at::Tensor made_NH;
  {
    const auto scope = leaving.scope(leaving.mlp);
    made_NH = mlp->forward(mlp->region.enter(middle[0]), pass, again);
  }
  return normed_sum(mlp_norm, middle[1], made_NH, leaving.post_attention_norm);
}

void EncoderLayer::visit(Visitor& visitor) {
  attention->visit(visitor);
  attention_norm.visit(visitor);
  mlp->visit(visitor);
  mlp_norm.visit(visitor);
}

}  // namespace danlu::layers
