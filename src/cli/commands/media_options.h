// cli/commands/media_options.h: flags of every verb that reads pictures and videos.
#pragma once
#include <vector>

#include "base/options.h"

namespace danlu::cli {

/// Read by settings::media_flags_from.
std::vector<OptionSpec> media_options();

}  // namespace danlu::cli
