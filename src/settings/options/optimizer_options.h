// settings/options/optimizer_options.h: the optimizer and its parameter groups.
#pragma once
#include "base/options.h"
#include "settings/optimizer.h"

namespace danlu::settings {

/// Errors: UsageError for --param_groups that is no list of rules.
AdamWConfig adamw_from(const Options& options);

}  // namespace danlu::settings
