// settings/options/precision.h: the element type that options ask for.
#pragma once
#include <optional>

#include "base/options.h"
#include "settings/config.h"

namespace danlu::settings {

/// --dtype, --bf16 and --fp16; none: auto. Errors: UsageError for two that disagree.
std::optional<Precision> precision_of(const Options& options);
/// The same for training, where auto is bf16.
Precision training_precision(const Options& options);

}  // namespace danlu::settings
