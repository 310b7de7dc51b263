// settings/options/from_options.h: the one place where option names become a TrainConfig.
#pragma once
#include <optional>
#include <string>

#include "base/options.h"
#include "settings/config.h"

namespace danlu::settings {

/// `verb`: sft, pretrain, train or posttrain; it decides defaults. DeepSpeed files, FSDP words,
/// model short names and Megatron's retyped architecture are resolved here, and notices printed.
/// Errors: UsageError (flags), ModelError (no such model), IoError.
TrainConfig config_from_options(const std::string& verb, const Options& options);

/// --dtype, --bf16 and --fp16; none: auto. Errors: UsageError for two that disagree.
std::optional<Precision> precision_of(const Options& options);
/// The same for training, where auto is bf16.
Precision training_precision(const Options& options);

}  // namespace danlu::settings
