// layers/mlp.h: the gated feed-forward layer: down(activation(gate x) * up x).
#pragma once
#include <memory>

#include "arch/model_config.h"
#include "layers/feed_forward.h"
#include "layers/linear.h"

namespace danlu::layers {

struct Mlp : FeedForward {
  Linear gate, up, down;
  arch::Activation activation = arch::Activation::kSilu;
  Linear gate_up = {};  ///< both in one, gate first: in place of `gate` and `up`

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

 private:
  at::Tensor activated(const at::Tensor& gate_NF, const at::Tensor& up_NF) const;
};

}  // namespace danlu::layers
