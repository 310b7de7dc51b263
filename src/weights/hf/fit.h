// weights/hf/fit.h: whether the tensors of a source are those that a config.json asks for.
#pragma once
#include <string>
#include <vector>

#include "arch/model_config.h"
#include "weights/tensor_source.h"

namespace danlu::weights {

/// Everything that keeps a source from being loaded, by kind; all empty if it fits.
struct Misfit {
  struct Shape {
    std::string name;
    std::vector<int64_t> in_file, expected;
  };
  std::vector<arch::ParamSpec> missing;
  std::vector<TensorInfo> unknown;
  std::vector<Shape> reshaped;
  std::vector<TensorInfo> not_floating;
  bool empty() const {
    return missing.empty() && unknown.empty() && reshaped.empty() && not_floating.empty();
  }
};

/// Tied heads may be absent, ignored buffers (arch::Family::ignored_names) and layers
/// that predict further ahead (arch/prediction.h) are passed over.
Misfit misfit_of(const arch::ModelConfig& config, const TensorSource& source);

}  // namespace danlu::weights
