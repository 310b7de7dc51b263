// ops/main_grad.h: where training sums the gradient of a weight, past autograd.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <vector>

namespace danlu::ops {

/// What a backward leaves to be done, in its order.
using LaterWork = std::vector<std::function<void()>>;

/// Operators that are given one add a weight's gradient to `sum` as soon as they have it, in f32,
/// and hand autograd none: no gradient in the weight's own type exists, and none waits.
struct MainGrad {
  at::Tensor sum;  ///< f32, of the weight's shape; undefined: the gradient is autograd's
  /// Given: linear layers leave the weight's gradient there, which is as large a product as that of
  /// their input's, for when a pipeline has nothing more urgent.
  LaterWork* later = nullptr;
};
/// Null: the gradient is autograd's. Graphs keep it alive.
using MainGradPtr = std::shared_ptr<const MainGrad>;

inline bool takes_grad(const MainGradPtr& main) { return main && main->sum.defined(); }

}  // namespace danlu::ops
