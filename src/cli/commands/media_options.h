// cli/commands/media_options.h: flags of every verb that reads pictures and videos.
#pragma once
#include <vector>

#include "base/options.h"

namespace danlu::cli {

/// Read by settings::media_flags_from.
std::vector<OptionSpec> media_options();

/// `given` with what --model_kwargs says, ms-swift's variables, in the flags that are left out.
/// Errors: UsageError for other keys.
Options with_model_kwargs(const OptionTable& table, const Options& given);

}  // namespace danlu::cli
