// train/run.h: a whole training job, from configuration to a finished run directory.
#pragma once
#include "train/settings.h"

namespace danlu::train {

/// Checks everything that can be checked, then loads weights, resumes if there is something to
/// resume, trains, saves. Returns 0, or throws danlu::Error.
int run(const TrainConfig& config);

}  // namespace danlu::train
