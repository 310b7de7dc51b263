// weights/hf/tower_file.h: ms-swift's file of a vision tower and its merger that were trained whole
// beside adapters of the decoder (its tuner lora_llm): vit.safetensors in an adapter's directory,
// under the names that PEFT's model has, which adapter_model.safetensors and adapter_config.json do
// not speak of.
#pragma once
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "weights/tensor_source.h"

namespace danlu::weights {

inline constexpr const char* kTowerFile = "vit.safetensors";

/// The modules that it holds, under the hub's names, sorted: trained whole, as modules_to_save.
/// None where an adapter's directory has no such file. Errors: those of open_safetensors;
/// ModelError for a tensor that is no weight or bias of a model that PEFT wraps.
std::vector<std::string> modules_in_tower_file(const std::filesystem::path& adapter);

/// `source`, an adapter's tensors, with those of that file; itself where there is none.
/// Errors: those of modules_in_tower_file; ModelError for a tensor that both have.
std::shared_ptr<const TensorSource> with_tower_file(std::shared_ptr<const TensorSource> source,
                                                    const std::filesystem::path& adapter);

}  // namespace danlu::weights
