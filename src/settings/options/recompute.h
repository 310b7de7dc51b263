// settings/options/recompute.h: what becomes of activations until their backward, from options.
#pragma once
#include "base/options.h"
#include "settings/activation_offload.h"
#include "settings/recompute_layers.h"

namespace danlu::settings {

/// Errors: UsageError for options that do not go together.
RecomputeFlags recompute_from(const Options& options);

/// The directory of files is left empty. Errors: UsageError.
ActivationOffload activation_offload_from(const Options& options);

/// Says which numbers of layers are more than the `layers` that a stage has at most.
void report_more_layers(const Options& options, int64_t layers);

}  // namespace danlu::settings
