// layers/linear.h: a linear layer and its adapter.
#pragma once
#include <optional>
#include <vector>

#include "layers/lora.h"
#include "layers/module.h"
#include "layers/pass.h"
#include "parallel/parameter.h"
#include "parallel/region.h"

namespace danlu::layers {

using parallel::Parameter;

struct Linear {
  std::string path;  ///< module name in HF's tree: the weight's name without ".weight"
  Parameter weight;  ///< [O, I]: this rank's rows or columns
  Parameter bias;    ///< [O], this rank's rows where the weight's are cut; or undefined
  std::optional<LoraAdapter> adapter;

  bool defined() const { return weight.defined(); }
  /// Whether some rows of the pass go through an adapter.
  bool is_adapted(const Pass& pass) const;
  /// That of the rows of one run; nullptr: none.
  const LoraAdapter* adapter_in(const AdapterRun& run) const;
  /// The one that all rows go through; nullptr where there is none, or rows have different ones.
  const LoraAdapter* adapter_of_all(const Pass& pass) const;
  /// x W^T + b, adapter included. Shapes  x_NI [N, I]; result [N, O].
  at::Tensor forward(const at::Tensor& x_NI, const Pass& pass) const;
  /// The last layer of a region: its columns are cut, so its products are partial sums [N, O],
  /// which leave() adds up; then it adds the bias, once.
  at::Tensor partial(const at::Tensor& x_NI, const Pass& pass,
                     const parallel::Region& region) const;
  at::Tensor leave(const at::Tensor& partial_NO, const parallel::Region& region) const;
  void visit(Visitor& visitor) { visitor.linear(*this); }
  /// The weight [O, I] that forward() multiplies by, adapter and all, as one dense matrix. Without
  /// gradient. REQUIRES: all rows have the same.
  at::Tensor whole_weight(const Pass& pass) const;

 private:
  /// With `added`, the bias or none.
  at::Tensor product(const at::Tensor& x_NI, const Pass& pass, const Parameter& added) const;
};

/// forward() of each with one input; without a graph and adapters in one loop where ops have one.
/// Shapes  x_NI [N, I]; results [N, O] of each layer's O.
std::vector<at::Tensor> forward_each(const std::vector<const Linear*>& linears,
                                     const at::Tensor& x_NI, const Pass& pass);

}  // namespace danlu::layers
