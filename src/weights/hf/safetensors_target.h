// weights/hf/safetensors_target.h: planning safetensors files: those of a Hugging Face directory,
// and single ones.
#pragma once
#include <filesystem>

#include "arch/model_config.h"
#include "weights/convert/target.h"

namespace danlu::weights {

/// The plan of one file that holds `tensors`, in the reference writer's order; offsets in the
/// caller's. `metadata`: string -> string.
PlannedFile plan_safetensors_file(const std::vector<TensorInfo>& tensors, const Json& metadata);

/// model.safetensors, or shards of at most `max_shard_bytes` and their index. `globals`: in model
/// order, in the dtypes to store.
Target plan_hf_directory(std::vector<TensorInfo> globals, uint64_t max_shard_bytes,
                         const std::string& base_name = "model");

/// The same of a whole model, whose experts lie as the family's files have them
/// (hf/stored_form.h).
Target plan_hf_model(const arch::ModelConfig& config, std::vector<TensorInfo> globals,
                     uint64_t max_shard_bytes);

/// plan_hf_model in the files that another directory's index (model.safetensors.index.json) names,
/// each tensor where that has it, under either of its names (hf/tower_names.h). Errors: ModelError
/// for an index that is broken, lacks a tensor, or names files that are no safetensors files beside
/// it.
Target plan_hf_model_like(const arch::ModelConfig& config, std::vector<TensorInfo> globals,
                          const std::filesystem::path& index);

}  // namespace danlu::weights
