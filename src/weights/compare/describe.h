// weights/compare/describe.h: weights in words for a person.
#pragma once
#include <string>
#include <vector>

#include "arch/model_config.h"
#include "weights/tensor_source.h"

namespace danlu::weights {

/// "1,234 parameters in 12 tensors, 4.9 kB: BF16 10, F32 2".
std::string describe_totals(const TensorSource& source);

/// A table of stored type, shape and name, one line per kind of tensor: numbers in names become '*'
/// where type and shape agree ("24 x  BF16 [896, 896]  model.layers.*.self_attn.q_proj.weight").
/// `every_one`: no grouping, and each tensor's file. Lines are indented by two and end in '\n'.
std::string describe_tensor_table(const TensorSource& source, bool every_one);

/// What keeps `source` from being loaded as `config`: missing, unknown and wrongly shaped tensors,
/// one line each; empty if it fits. Tied heads may be absent, ignored buffers are passed over.
std::vector<std::string> mismatches(const arch::ModelConfig& config, const TensorSource& source);

}  // namespace danlu::weights
