// settings/options/megatron_flags.h: an architecture retyped as Megatron flags must be that of
// config.json.
#pragma once
#include "arch/model_config.h"
#include "base/options.h"

namespace danlu::settings {

/// Errors: UsageError listing every flag that disagrees, with both values.
void check_architecture_flags(const Options& options, const arch::ModelConfig& model);

}  // namespace danlu::settings
