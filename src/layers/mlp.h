// layers/mlp.h: the gated feed-forward layer: down(silu(gate x) * up x).
#pragma once
#include <memory>

#include "layers/linear.h"

namespace danlu::layers {

struct Mlp {
  Linear gate, up, down;
  parallel::Region region{parallel::Group::alone(), false};
  /// Shapes  x_NH [N, H]; result [N, H], or this rank's rows of both (parallel/region.h). `pass` is
  /// shared: recomputation reads it again.
  at::Tensor forward(const at::Tensor& x_NH, const std::shared_ptr<const Pass>& pass) const;
  void collect(std::vector<at::Tensor>& tensors) const;
};

}  // namespace danlu::layers
