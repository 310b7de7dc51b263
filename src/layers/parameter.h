// layers/parameter.h: a named tensor of a layer and how it is cut over ranks.
#pragma once
#include <ATen/core/Tensor.h>

#include <string>

#include "parallel/split.h"

namespace danlu::layers {

struct Parameter {
  std::string name;   ///< name in HF files; empty: the layer has none (no bias)
  at::Tensor tensor;  ///< undefined when the layer has none
  parallel::Split split = parallel::Split::kReplicated;
  bool defined() const { return tensor.defined(); }
};

}  // namespace danlu::layers
