// weights/megatron/lora_layout.h: MindSpeed-LLM's LoRA tensors as views of PEFT's.
//
// A fused matrix has one A for its parts: PEFT gets a copy for each. Its B has the rows of the
// fused matrix. Source: docs/formats/megatron.md.
#pragma once
#include <memory>
#include <vector>

#include "weights/lora/peft.h"
#include "weights/megatron/model_layout.h"

namespace danlu::weights::megatron {

/// The adapters found in `files` (beside model.layout.files). Layout::globals are PEFT tensors; a
/// stored A stands once for each of its parts, so the layout is for reading only. Empty if there
/// are none. Adapters of routed experts are looked for where each expert is two linear layers
/// (ExpertForm::kSequential). Errors: ModelError for an A without B, and a rank that differs
/// between tensor ranks.
Layout lora_layout(const ModelLayout& model,
                   const std::vector<std::shared_ptr<const TensorSource>>& files);

/// What the adapters are: target modules and ranks from the tensors. `alpha` is the caller's.
PeftConfig peft_of(const Layout& lora, double alpha);

/// Gives the matrices under an adapter the name they have then: "X.base_layer.weight" for
/// "X.weight", where the file has only the former.
void rename_base_layers(ModelLayout& model,
                        const std::vector<std::shared_ptr<const TensorSource>>& files);

}  // namespace danlu::weights::megatron
