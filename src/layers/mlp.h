// layers/mlp.h: the gated feed-forward layer: down(silu(gate x) * up x).
#pragma once
#include <memory>

#include "layers/feed_forward.h"
#include "layers/linear.h"

namespace danlu::layers {

struct Mlp : FeedForward {
  Linear gate, up, down;

  explicit Mlp(const parallel::Region& region = {parallel::Group::alone(), false})
      : FeedForward(region) {}
  at::Tensor forward(const at::Tensor& x_NH, const std::shared_ptr<const Pass>& pass,
                     const Again& again) const override {
    return down.leave(partial(x_NH, pass, again), region);
  }
  /// The same without leaving the region: this rank's part of a sum [N, H].
  at::Tensor partial(const at::Tensor& x_NH, const std::shared_ptr<const Pass>& pass,
                     const Again& again) const;
  void visit(Visitor& visitor) override;
};

}  // namespace danlu::layers
