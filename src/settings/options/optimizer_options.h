// settings/options/optimizer_options.h: the optimizer and its parameter groups.
#pragma once
#include "base/options.h"
#include "settings/optimizer.h"

namespace danlu::settings {

/// rate: of parameters that no flag names, above 0. Errors: UsageError for --param_groups that is
/// no list of rules.
AdamWConfig adamw_from(const Options& options, double rate);

}  // namespace danlu::settings
