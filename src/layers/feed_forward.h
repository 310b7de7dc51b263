// layers/feed_forward.h: the part of a decoder layer after its attention.
#pragma once
#include <ATen/core/Tensor.h>

#include <memory>

#include "layers/module.h"
#include "layers/recompute.h"
#include "parallel/region.h"

namespace danlu::layers {

struct FeedForward {
  parallel::Region region;

  explicit FeedForward(const parallel::Region& of) : region(of) {}
  virtual ~FeedForward() = default;
  /// Shapes  x_NH [N, H], inside the region (parallel/region.h); result [N, H], or this rank's rows
  /// of it, outside. `pass` is shared: recomputation reads it again.
  virtual at::Tensor forward(const at::Tensor& x_NH, const std::shared_ptr<const Pass>& pass,
                             const Again& again) const = 0;
  virtual void visit(Visitor& visitor) = 0;
};

}  // namespace danlu::layers
