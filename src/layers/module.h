// layers/module.h: the tree of a network. Loading, freezing, adapters, units of memory,
// recomputation and offload all walk this tree, so that none of them has a list of parameters of
// its own.
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

/// Every struct of the tree has visit(Visitor&), which shows each of its members once, in the order
/// of a pass, also those that are undefined.
class Visitor {
 public:
  virtual ~Visitor() = default;
  virtual void parameter(parallel::Parameter& /*parameter*/) {}
  /// Shows its weight, its bias, and those of its adapter.
  virtual void linear(Linear& linear);
  /// A tensor that a pass reads and nobody trains.
  virtual void constant(at::Tensor& /*tensor*/) {}
};

/// One layer of the chain of layers. A kind of layer is a struct of its own that stands in the
/// assembly (models/network.cpp); nothing else knows which kinds there are.
class Block {
 public:
  virtual ~Block() = default;
  virtual void visit(Visitor& visitor) = 0;
  /// Takes hidden states [N, H] and gives the next ones, or under sequence parallelism this rank's
  /// rows of both (parallel/region.h). The block must outlive the graph it makes. `pass` is shared
  /// because recomputation reads it again.
  virtual at::Tensor forward(const at::Tensor& x_NH, const std::shared_ptr<const Pass>& pass,
                             const Again& again, const Leaving& leaving) const = 0;
};

/// Calls `see` for each defined parameter, also for those of linear layers and adapters.
template <typename See>
struct ParameterVisitor : Visitor {
  explicit ParameterVisitor(See seen) : see(std::move(seen)) {}
  void parameter(parallel::Parameter& parameter) override {
    if (parameter.defined()) see(parameter);
  }
  See see;
};
/// Whether the layer has a weight.
bool is_there(const Linear& linear);
/// Calls `see` for each linear layer that has a weight, and not for its parameters.
template <typename See>
struct LinearVisitor : Visitor {
  explicit LinearVisitor(See seen) : see(std::move(seen)) {}
  void linear(Linear& linear) override {
    if (is_there(linear)) see(linear);
  }
  See see;
};

/// Every tensor that a pass reads in `node`: parameters, also of adapters, and constants.
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
