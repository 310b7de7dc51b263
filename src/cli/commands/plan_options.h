// cli/commands/plan_options.h: the options of danlu plan that no training has.
#pragma once
#include <vector>

#include "base/options.h"

namespace danlu::cli {

/// Machine, devices, search and output.
std::vector<OptionSpec> planning_options();

}  // namespace danlu::cli
