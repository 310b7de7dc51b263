// optim/grad_buffer.h: gradients of a whole step, summed over micro-batches in f32.
#pragma once
#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "optim/chunks.h"
#include "optim/parameter.h"

namespace danlu::optim {

/// One flat f32 buffer with a slice per parameter. An f32 parameter's .grad is its slice, so
/// autograd adds into it without a copy; gradients of narrower parameters are added by collect().
class GradBuffer {
 public:
  /// Takes over .grad of every parameter. Errors: InternalError if a parameter is not contiguous.
  explicit GradBuffer(std::vector<Parameter> parameters);
  /// Sets every gradient to 0: call before the first backward of a step.
  void zero();
  /// Call after every backward.
  void collect();
  /// Slice of parameter `index`, f32, in the parameter's shape.
  const at::Tensor& grad(size_t index) const { return slices_[index]; }
  const at::Tensor& flat() const { return flat_; }
  const FlatLayout& layout() const { return layout_; }

  /// sqrt of the sum of squares of all gradients times `scale`, added in f64 in a fixed order; not
  /// finite if any gradient is not.
  double norm(double scale) const;
  /// Names of the parameters with a non-finite gradient, at most `limit`.
  std::vector<std::string> non_finite(size_t limit) const;

 private:
  std::vector<Parameter> parameters_;
  FlatLayout layout_;
  at::Tensor flat_;
  std::vector<at::Tensor> slices_;
};

}  // namespace danlu::optim
