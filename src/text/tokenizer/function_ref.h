// text/tokenizer/function_ref.h: a callable passed down the stack without owning it.
#pragma once
#include <memory>
#include <type_traits>
#include <utility>

namespace danlu::text {

template <typename Signature>
class FunctionRef;

/// Refers to any callable; valid as long as that callable lives (bind only as a function argument).
template <typename R, typename... Args>
class FunctionRef<R(Args...)> {
 public:
  template <typename F>
    requires(!std::is_same_v<std::remove_cvref_t<F>, FunctionRef>)
  FunctionRef(F&& callable)  // NOLINT: conversion is the point
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(callable)))),
        call_([](void* object, Args... args) -> R {
          return (*static_cast<std::remove_reference_t<F>*>(object))(std::forward<Args>(args)...);
        }) {}
  R operator()(Args... args) const { return call_(object_, std::forward<Args>(args)...); }

 private:
  void* object_;
  R (*call_)(void*, Args...);
};

}  // namespace danlu::text
