// arch/stacked_experts.h: families whose files hold all experts of a layer in two tensors.
#pragma once
#include "arch/model_config.h"

namespace danlu::arch {

/// Files have "<…>experts.gate_up_proj" [experts, hidden, 2 width], gate first, and
/// "<…>experts.down_proj" [experts, width, hidden]: of each expert the matrices of its linear
/// layers turned over. Parameters are each expert's own all the same:
/// "<…>experts.3.gate_proj.weight" [width, hidden]. Source: transformers, modeling_llama4.py.
bool stacks_experts(const ModelConfig& config);

/// False: files of the family have these matrices as they are, [experts, 2 width, hidden] and
/// [experts, hidden, width]. Source: transformers, modeling_qwen3_5_moe.py.
bool turns_stacked_experts(const ModelConfig& config);

}  // namespace danlu::arch
