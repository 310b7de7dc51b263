// weights/lora/lora_plan.h: what merging a PEFT adapter changes in a model, every tensor of the
// adapter accounted for.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "arch/model_config.h"
#include "weights/lora/low_rank_update.h"
#include "weights/lora/peft.h"
#include "weights/tensor_source.h"

namespace danlu::weights {

/// One tensor of the merged model that is not the base model's tensor of its name.
struct MergedTensor {
  std::string name;                         ///< in the merged model
  std::string base;                         ///< the base model's tensor it starts from
  std::string replaced_by = {};             ///< the adapter's tensor that takes its place
  std::optional<LowRankParts> update = {};  ///< neither: a copy (the other end of an untied pair)
};

struct MergePlan {
  std::vector<MergedTensor> tensors;  ///< by name
  /// The base ties head and embedding, and the adapter changes one of them, or both apart: the
  /// merged model has both, and its config.json must say tie_word_embeddings = false.
  bool unties_head = false;
};

/// LoRA with rank and alpha patterns, rsLoRA and DoRA on linear layers and the head, LoRA on the
/// embedding, modules_to_save, biases. Copies of base weights that PEFT stores beside adapters on
/// head or embedding must equal the base model's. fan_in_fan_out speaks of Conv1D layers, whose A
/// and B lie as those of others: of a model without them a warning, as in PEFT, and no effect.
/// Errors: ModelError naming file and tensor, with both shapes where they differ: an adapter tensor
/// that fits no module, or that adapter_config.json does not ask for; a part that is missing; a
/// wrong rank or shape; a module both adapted and saved whole; targets or modules_to_save that name
/// nothing; DoRA on the embedding; a head with normalised rows; weights that are not floating.
MergePlan plan_merge(const TensorSource& base, const TensorSource& adapter, const PeftConfig& peft,
                     const arch::ModelConfig& config);

}  // namespace danlu::weights
