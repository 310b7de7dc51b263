// layers/linear.h: a linear layer, its split over tensor-parallel ranks, and its adapter.
#pragma once
#include <optional>
#include <vector>

#include "layers/lora.h"
#include "layers/parameter.h"
#include "layers/pass.h"

namespace danlu::layers {

struct Linear {
  std::string path;  ///< module name in HF's tree: the weight's name without ".weight"
  Parameter weight;  ///< [O, I]; rows (kRows, kKvGroups) or columns (kColumns) may be split
  Parameter bias;    ///< [O] or undefined
  std::optional<LoraAdapter> adapter;

  bool defined() const { return weight.defined(); }
  /// Shapes  x_NI [N, I]; result [N, O] (of this rank, where rows are split).
  at::Tensor forward(const at::Tensor& x_NI, const Pass& pass) const;
  /// Appends every tensor that forward reads.
  void collect(std::vector<at::Tensor>& tensors) const;
};

}  // namespace danlu::layers
