// layers/mlp.h: the gated feed-forward layer: down(silu(gate x) * up x).
#pragma once
#include <memory>

#include "layers/linear.h"

namespace danlu::layers {

struct Mlp {
  Linear gate, up, down;
  /// Shapes  x_NH [N, H]; result [N, H]. `pass` is shared: recomputation reads it again.
  at::Tensor forward(const at::Tensor& x_NH, const std::shared_ptr<const Pass>& pass) const;
  void collect(std::vector<at::Tensor>& tensors) const;
};

}  // namespace danlu::layers
