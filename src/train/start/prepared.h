// train/start/prepared.h: all that is known of a run before its weights are read.
#pragma once
#include <c10/core/Device.h>

#include <memory>

#include "plan/request.h"
#include "train/objective.h"
#include "train/start/earlier_run.h"
#include "train/start/inputs.h"
#include "train/start/same_run.h"

namespace danlu::train {

struct Prepared {
  const TrainConfig& config;  ///< complete
  const at::Device& device;
  const Ranks& ranks;
  const weights::CheckpointSource& source;
  const PreparedText& text;
  const PreparedData& data;
  const PlannedSteps& steps;
  const EarlierRun& earlier;
  const Origin& origin;
  const plan::Request& memory;
  const std::shared_ptr<const Objective>& objective;  ///< nullptr: config.objective says which
};

}  // namespace danlu::train
