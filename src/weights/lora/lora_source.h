// weights/lora/lora_source.h: a base model with a PEFT adapter merged into it, as a lazy view.
#pragma once
#include <memory>
#include <optional>

#include "arch/model_config.h"
#include "weights/lora/peft.h"
#include "weights/tensor_source.h"

namespace danlu::weights {

struct MergedModel {
  /// The base model's tensors and names, those that the adapter changes computed when they are read
  /// (weights/lora/low_rank_update.h) and therefore not mapped. An untied head is one more tensor.
  /// file_of() names the base model's file, or the adapter's where that replaces a tensor.
  std::shared_ptr<const TensorSource> source;
  /// The base model's, with tie_embeddings (and raw's tie_word_embeddings) false where merging
  /// unties the head.
  arch::ModelConfig config;
};

/// Reads names and shapes now, values later (but for copies of base weights in the adapter, which
/// are compared). `changed`: the dtype of tensors that the adapter changes or replaces, to which
/// they are rounded once; empty: each as in the base. What it leaves alone has the base's.
/// Errors: ModelError as plan_merge (weights/lora/lora_plan.h).
MergedModel merge_adapters(std::shared_ptr<const TensorSource> base,
                           std::shared_ptr<const TensorSource> adapter, const PeftConfig& peft,
                           const arch::ModelConfig& config, std::optional<DType> changed = {});

}  // namespace danlu::weights
