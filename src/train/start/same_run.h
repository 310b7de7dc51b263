// train/start/same_run.h: the steps of a run, and that every rank, and the run whose checkpoint it
// goes on from, takes the same ones.
#pragma once
#include <c10/core/Device.h>

#include "base/json.h"
#include "train/start/earlier_run.h"
#include "train/start/inputs.h"

namespace danlu::train {

struct PlannedSteps {
  RunPlan plan;
  Json identity;  ///< as settings::run_identity
};

/// Errors: UsageError where a rank would train something else; as check_resumable. Collective.
PlannedSteps plan_same_run(const Inputs& inputs, const weights::CheckpointSource& source,
                           const at::Device& device, const Ranks& ranks, const EarlierRun& earlier);

}  // namespace danlu::train
