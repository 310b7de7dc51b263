// train/run_dir/identity.h: which run this is: two runs of one identity take the same steps.
#pragma once
#include "base/json.h"
#include "train/config.h"
#include "train/run_plan.h"

namespace danlu::train {

/// Every setting that a step's numbers depend on, the base model's fingerprint included, as flat
/// JSON whose differences can be shown key by key; the data have a hash of their own. Numbers the
/// plan derives (warm-up, decay) are in it as derived. Errors: IoError.
Json run_identity(const TrainConfig& config, const weights::CheckpointSource& source,
                  const RunPlan& plan);

}  // namespace danlu::train
