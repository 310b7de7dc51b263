// settings/options/freeze_options.h: which parameters a line leaves as they are, by the flags of
// several systems.
#pragma once
#include <string>
#include <vector>

#include "arch/model_config.h"
#include "base/options.h"
#include "settings/config.h"

namespace danlu::settings {

/// TrainConfig::freeze of a line: --freeze; ms-swift's freeze_parameters_regex and
/// freeze_parameters_ratio, then trainable_parameters and trainable_parameters_regex, which
/// outweigh them; LLaMA-Factory's freeze_trainable_layers, freeze_trainable_modules,
/// freeze_extra_modules and use_llama_pro. Errors: UsageError for layers, modules or parameters
/// that the model does not have, and for patterns that are none.
std::vector<std::string> freeze_patterns(const Options& options, Tuner tuner,
                                         const arch::ModelConfig& model);

}  // namespace danlu::settings
