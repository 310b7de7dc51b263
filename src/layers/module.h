// layers/module.h: the tree of a network. Whatever walks over its parameters walks over this one:
// loading, freezing, adapters, units of memory, recomputation, offloading.
#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <utility>
#include <vector>

#include "layers/pass.h"
#include "parallel/parameter.h"

namespace danlu::layers {

struct Again;
struct Leaving;
struct Linear;

/// Every struct of the tree has visit(Visitor&), which shows what is in it once, in the order of a
/// pass, whether it is there (defined) or not.
class Visitor {
 public:
  virtual ~Visitor() = default;
  virtual void parameter(parallel::Parameter& /*parameter*/) {}
  /// Shows its weight, its bias, and those of its adapter.
  virtual void linear(Linear& linear);
  /// What a pass reads and nobody trains.
  virtual void constant(at::Tensor& /*tensor*/) {}
};

/// One layer of the chain of layers. A kind of layer is a struct of its own that stands in the
/// assembly (models/network.cpp); nothing else knows which kinds there are.
class Block {
 public:
  virtual ~Block() = default;
  virtual void visit(Visitor& visitor) = 0;
  /// Hidden states that go in and those that come out: [N, H], or this rank's rows of both
  /// (parallel/region.h). The block must outlive the graph it makes; `pass` is shared, since
  /// recomputation reads it again.
  virtual at::Tensor forward(const at::Tensor& x_NH, const std::shared_ptr<const Pass>& pass,
                             const Again& again, const Leaving& leaving) const = 0;
};

/// Calls `see` for each parameter that is there, those of linear layers and adapters too.
template <typename See>
struct ParameterVisitor : Visitor {
  explicit ParameterVisitor(See seen) : see(std::move(seen)) {}
  void parameter(parallel::Parameter& parameter) override {
    if (parameter.defined()) see(parameter);
  }
  See see;
};
/// Whether it has a weight.
bool is_there(const Linear& linear);
/// Calls `see` for each linear layer that is there, and goes into none.
template <typename See>
struct LinearVisitor : Visitor {
  explicit LinearVisitor(See seen) : see(std::move(seen)) {}
  void linear(Linear& linear) override {
    if (is_there(linear)) see(linear);
  }
  See see;
};

/// Every tensor that a pass reads there: parameters, adapters', and what nobody trains.
template <typename Node>
std::vector<at::Tensor> tensors_of(const Node& node) {
  struct All : Visitor {
    void parameter(parallel::Parameter& parameter) override { constant(parameter.tensor); }
    void constant(at::Tensor& tensor) override {
      if (tensor.defined()) tensors.push_back(tensor);
    }
    std::vector<at::Tensor> tensors;
  } all;
  const_cast<Node&>(node).visit(all);  // it only looks
  return all.tensors;
}

}  // namespace danlu::layers
