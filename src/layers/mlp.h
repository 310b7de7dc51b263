// layers/mlp.h: the gated feed-forward layer: down(activation(gate x) * up x).
#pragma once
#include <memory>

#include "arch/model_config.h"
#include "layers/linear.h"
#include "layers/recompute.h"

namespace danlu::layers {

struct Mlp {
  Linear gate, up, down;
  parallel::Region region{parallel::Group::alone(), false};
  arch::Activation activation = arch::Activation::kSilu;
  Linear gate_up = {};  ///< both in one, gate first: in place of `gate` and `up`
  /// Shapes  x_NH [N, H], inside the region (parallel/region.h); result [N, H], or this rank's rows
  /// of it, outside. `pass` is shared: recomputation reads it again.
  at::Tensor forward(const at::Tensor& x_NH, const std::shared_ptr<const Pass>& pass,
                     const Again& again = {}) const;
  void visit(Visitor& visitor);

 private:
  at::Tensor activated(const at::Tensor& gate_NF, const at::Tensor& up_NF) const;
};

}  // namespace danlu::layers
