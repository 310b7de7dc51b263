// settings/options/adapter_flags.h: LoRA flags beside --adapters. An adapter's shape is fixed by
// its files; a flag that says otherwise must not be lost in silence.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "arch/model_config.h"
#include "base/options.h"

namespace danlu::settings {

/// Compares the LoRA flags that were given (on the command line or in a file; not a profile's) with
/// the adapter's adapter_config.json. `targets` is what --lora_target means; it is compared by the
/// layers that it chooses.
/// Errors: UsageError listing flag, given and actual value; those of load_peft_config.
void check_adapter_flags(const Options& options, const std::filesystem::path& adapter,
                         const std::vector<std::string>& targets, const arch::ModelConfig& model);

}  // namespace danlu::settings
