// ops/main_grad.h: the f32 sum to which operators add the gradient of a weight, past autograd.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace danlu::ops {

/// Work that a backward leaves for later, in its order.
using LaterWork = std::vector<std::function<void()>>;

/// An operator that has one adds the weight's gradient to `sum` in f32 as soon as it is computed,
/// and gives none to autograd. So no gradient in the weight's own type takes memory.
struct MainGrad {
  /// f32, in the weight's shape. If it is undefined and `make` is empty, autograd gets the
  /// gradient.
  mutable at::Tensor sum;
  /// Makes `sum` when the first operator has a gradient for it, so that gradients take memory only
  /// when activations have been freed.
  std::function<void()> make = {};
  /// Whether nothing was added to `sum` yet, so that its values mean nothing.
  mutable bool is_fresh = false;
  /// Where linear layers leave the product that makes the weight's gradient, if a pipeline has more
  /// urgent work; nullptr: they do it at once.
  LaterWork* later = nullptr;
};
/// nullptr: autograd gets the gradient. Graphs keep the object alive.
using MainGradPtr = std::shared_ptr<const MainGrad>;

/// Whether the gradient goes to `main->sum`, which it makes if needed.
inline bool has_place(const MainGradPtr& main) {
  if (!main) return false;
  if (!main->sum.defined() && main->make) main->make();
  return main->sum.defined();
}

/// For an operator that can overwrite the sum. True if the sum is fresh, and then no more: the
/// caller sets all of it. Call it only right before. REQUIRES: has_place.
inline bool is_first(const MainGradPtr& main) { return std::exchange(main->is_fresh, false); }

/// For an operator that adds to the sum: has_place, after setting a fresh sum to 0.
inline bool takes_grad(const MainGradPtr& main) {
  if (!has_place(main)) return false;
  if (is_first(main)) main->sum.zero_();
  return true;
}

}  // namespace danlu::ops
