// train/start/begin.h: the model, optimizer and progress that a run begins with.
#pragma once
#include <cstdint>

#include "train/run_dir/progress.h"
#include "train/start/prepared.h"
#include "train/step.h"

namespace danlu::train {

struct Begun {
  TrainState state;
  RunProgress progress;
  int64_t consumed_samples = 0;  ///< by the run that is gone on from
};

/// Loads or initialises the model and restores what the checkpoint has. Errors: UsageError where
/// nothing is trained; as models::load_model, checkpoint::load_optimizer and restore_continued.
/// Collective.
Begun begin_training(const Prepared& run);

}  // namespace danlu::train
