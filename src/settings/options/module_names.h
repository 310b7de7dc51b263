// settings/options/module_names.h: module and parameter names in flags, checked against the
// architecture before a weight is read.
#pragma once
#include <string>
#include <vector>

#include "arch/model_config.h"
#include "settings/config.h"

namespace danlu::settings {

/// Last names of the layers that `word` means in another system: ms-swift's DEFAULT and Megatron's
/// linear_qkv (legacy: query_key_value) -> {"q_proj", "k_proj", "v_proj"}, {"W_pack"} or {"wqkv"};
/// linear_proj, linear_fc1 and linear_fc2 (dense, dense_h_to_4h, dense_4h_to_h) likewise. Empty for
/// words that are no such name.
std::vector<std::string> layers_called(const std::string& word, const arch::ModelConfig& model);

/// --lora_target and --lora_modules_to_save. Errors: UsageError naming flag and word
/// where one chooses nothing, with the names that there are.
void check_module_names(const TrainConfig& config, const arch::ModelConfig& model);

}  // namespace danlu::settings
