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
  /// Takes over .grad of every parameter. `mesh` outlives the buffer. Errors: InternalError if a
  /// parameter is not contiguous.
  GradBuffer(std::vector<Parameter> parameters, const parallel::Mesh& mesh);
  /// Sets every gradient to 0: call before the first backward of a step.
  void zero();
  /// Call after every backward.
  void collect();
  /// Once a step, after the last backward: sums over the data axis, and over the ranks of the
  /// tensor axis whose gradients of a piece are parts of one sum. Every rank calls it.
  void reduce();
  /// Slice of parameter `index`, f32, in the parameter's shape.
  const at::Tensor& grad(size_t index) const { return slices_[index]; }
  const at::Tensor& flat() const { return flat_; }
  const FlatLayout& layout() const { return layout_; }

  /// sqrt of the sum of squares of all gradients of the whole model, times `scale`, added in f64 in
  /// a fixed order; not finite if any gradient is not. Every rank calls it after reduce(), and gets
  /// the same.
  double norm(double scale) const;
  /// Names of the parameters with a non-finite gradient, at most `limit`.
  std::vector<std::string> non_finite(size_t limit) const;

 private:
  /// Consecutive elements of `flat_` that `copies` ranks of the tensor axis hold.
  struct Span {
    int64_t offset, size, copies;
  };
  std::vector<Span> spans_of(size_t index) const;
  void sum_copies();

  std::vector<Parameter> parameters_;
  const parallel::Mesh& mesh_;
  FlatLayout layout_;
  at::Tensor flat_;
  std::vector<at::Tensor> slices_;
};

}  // namespace danlu::optim
