// models/adapter_config.h: PEFT's adapter_config.json.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "base/json.h"
#include "models/causal_lm.h"

namespace danlu::models {

/// Errors: IoError, DataError (no JSON), ModelError for what Danlu cannot apply: another peft_type than LORA,
/// bias other than "none", fan_in_fan_out, layer_replication, trainable tokens and the like. Unknown keys are ignored.
LoraConfig read_adapter_config(const std::filesystem::path& file);

/// The keys PEFT writes, sorted. `modules`: paths of the adapted modules, from which "all-linear" is spelled out.
Json adapter_config_json(const LoraConfig& lora, const std::vector<std::string>& modules,
                         const std::string& base_model_path);

}  // namespace danlu::models
