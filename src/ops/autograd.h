// ops/autograd.h: what autograd functions have in common.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <torch/custom_class.h>

#include <initializer_list>
#include <utility>

namespace danlu::ops {

/// Whether a pass over these needs no graph: what an answer is made of, a token at a time, would
/// else spend a fifth of its time on nodes that nobody walks.
inline bool needs_no_graph(std::initializer_list<const at::Tensor*> inputs) {
  if (!at::GradMode::is_enabled()) return true;
  for (const at::Tensor* input : inputs)
    if (input->requires_grad()) return false;
  return true;
}

template <typename T>
struct Held : torch::CustomClassHolder {
  explicit Held(T of) : value(std::move(of)) {}
  T value;
};

/// A value of our own type among what a node keeps for its backward.
template <typename T>
at::IValue held(T value) {
  return at::IValue::make_capsule(c10::make_intrusive<Held<T>>(std::move(value)));
}
/// REQUIRES: `ivalue` is held<T>(…), and outlives what is returned.
template <typename T>
const T& held_in(const at::IValue& ivalue) {
  const auto holder = ivalue.toCapsule();
  return static_cast<const Held<T>&>(*holder).value;
}

}  // namespace danlu::ops
