// settings/options/recompute.h: what is computed again in backward, from options.
#pragma once
#include "base/options.h"
#include "settings/recompute_layers.h"

namespace danlu::settings {

/// Errors: UsageError for options that do not go together.
RecomputeFlags recompute_from(const Options& options);

}  // namespace danlu::settings
