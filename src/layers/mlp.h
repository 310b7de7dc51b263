// layers/mlp.h: the feed-forward layer: down(activation(gate x) * up x), or without a gate
// down(activation(up x)).
#pragma once
#include <memory>
#include <vector>

#include "arch/model_config.h"
#include "layers/feed_forward.h"
#include "layers/linear.h"

namespace danlu::layers {

struct Mlp : FeedForward {
  Linear gate, up, down;  ///< of an MLP without a gate that is undefined
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
                     const Again& again) const {
    return partial_of(inputs_of(x_NH, *pass), pass, again);
  }
  /// partial() in two parts: what gate and up give, or up alone, each [N, F]; and the rest.
  std::vector<at::Tensor> inputs_of(const at::Tensor& x_NH, const Pass& pass) const;
  at::Tensor partial_of(const std::vector<at::Tensor>& inputs,
                        const std::shared_ptr<const Pass>& pass, const Again& again) const;
  void visit(Visitor& visitor) override;

 private:
  /// inputs: of inputs_of().
  at::Tensor activated(const std::vector<at::Tensor>& inputs) const;
};

}  // namespace danlu::layers
