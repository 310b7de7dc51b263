// ops/main_grad.h: where training sums the gradient of a weight, past autograd.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace danlu::ops {

/// What a backward leaves to be done, in its order.
using LaterWork = std::vector<std::function<void()>>;

/// Operators that are given one add a weight's gradient to `sum` as soon as they have it, in f32,
/// and hand autograd none: no gradient in the weight's own type exists, and none waits.
struct MainGrad {
  /// f32, of the weight's shape; undefined, and nothing makes it: the gradient is autograd's.
  mutable at::Tensor sum;
  /// Given: gives `sum` memory when the first operator has a gradient for it, so that gradients
  /// come as the activations they are made from go.
  std::function<void()> make = {};
  /// Nothing has been added yet: what is in `sum` is no number.
  mutable bool is_fresh = false;
  /// Given: linear layers leave the weight's gradient there, which is as large a product as that of
  /// their input's, for when a pipeline has nothing more urgent.
  LaterWork* later = nullptr;
};
/// Null: the gradient is autograd's. Graphs keep it alive.
using MainGradPtr = std::shared_ptr<const MainGrad>;

/// Whether the gradient goes to `main->sum`, which is there then.
inline bool has_place(const MainGradPtr& main) {
  if (!main) return false;
  if (!main->sum.defined() && main->make) main->make();
  return main->sum.defined();
}

/// For an operator that can overwrite: true once for a fresh sum, all of which the caller sets,
/// then; asked when it does, not before. REQUIRES: has_place.
inline bool is_first(const MainGradPtr& main) { return std::exchange(main->is_fresh, false); }

/// For operators that add: has_place, and a fresh sum is 0.
inline bool takes_grad(const MainGradPtr& main) {
  if (!has_place(main)) return false;
  if (is_first(main)) main->sum.zero_();
  return true;
}

}  // namespace danlu::ops
