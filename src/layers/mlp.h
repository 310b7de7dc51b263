// layers/mlp.h: the gated feed-forward layer: down(silu(gate x) * up x).
#pragma once
#include <memory>

#include "layers/linear.h"
#include "layers/recompute.h"

namespace danlu::layers {

struct Mlp {
  Linear gate, up, down;
  parallel::Region region{parallel::Group::alone(), false};
  /// Shapes  x_NH [N, H], inside the region (parallel/region.h); result [N, H], or this rank's rows
  /// of it, outside. `pass` is shared: recomputation reads it again.
  at::Tensor forward(const at::Tensor& x_NH, const std::shared_ptr<const Pass>& pass,
                     const Again& again = {}) const;
  void visit(Visitor& visitor);
};

}  // namespace danlu::layers
