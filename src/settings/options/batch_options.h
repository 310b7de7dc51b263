// settings/options/batch_options.h: how many samples a step has, and how many steps a run.
#pragma once
#include <cstdint>

#include "base/options.h"
#include "settings/config.h"

namespace danlu::settings {

/// Everything but `ranks`, which follows from the mesh. TrainConfig::validate checks the numbers.
BatchConfig batch_from(const Options& options);

/// The batch of `ranks` ranks, where others of a job are lost: a step stays what it was, and those
/// that are left take its micro-batches.
BatchConfig batch_of_fewer(const BatchConfig& batch, int64_t ranks);

}  // namespace danlu::settings
