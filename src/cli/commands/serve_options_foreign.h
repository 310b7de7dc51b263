// cli/commands/serve_options_foreign.h: flags of other servers that Danlu's has not.
#pragma once
#include <vector>

#include "cli/commands/inference_options.h"

namespace danlu::cli {

/// Flags that a server alone would have: taken with a notice, or refused.
std::vector<OptionSpec> foreign_serve_options();

}  // namespace danlu::cli
