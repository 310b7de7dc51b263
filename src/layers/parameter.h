// layers/parameter.h: a named tensor of a layer and how it is cut over ranks.
#pragma once
#include <ATen/core/Tensor.h>

#include <string>

#include "arch/model_config.h"

namespace danlu::layers {

struct Parameter {
  std::string name;   ///< name in HF files; empty: the layer has none (no bias)
  at::Tensor tensor;  ///< undefined when the layer has none
  arch::Split split = arch::Split::kReplicated;
  bool defined() const { return tensor.defined(); }
};

}  // namespace danlu::layers
