// arch/turned_matrices.h: families whose files hold the matrices of their layers turned over.
#pragma once
#include "arch/model_config.h"

namespace danlu::arch {

/// Files have [in, out] where parameters, as everywhere, are [out, in]: matrices of layers, not
/// tables and heads. Source: transformers, pytorch_utils.py, Conv1D.
bool turns_matrices(const ModelConfig& config);

}  // namespace danlu::arch
