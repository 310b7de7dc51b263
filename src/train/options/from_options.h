// train/options/from_options.h: the one place where option names become a TrainConfig.
#pragma once
#include <string>

#include "base/options.h"
#include "train/config.h"

namespace danlu::train {

/// `verb`: sft, pretrain, train or posttrain; it decides defaults. DeepSpeed files, FSDP words,
/// model short names and Megatron's retyped architecture are resolved here, and notices printed.
/// Errors: UsageError (flags), ModelError (no such model), IoError.
TrainConfig config_from_options(const std::string& verb, const Options& options);

}  // namespace danlu::train
