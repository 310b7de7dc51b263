// train/start/begin.h: the model, optimizer and progress that a run begins with.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>

#include "base/file.h"
#include "base/json.h"
#include "models/weight_files.h"
#include "train/objectives/reference.h"
#include "train/run_dir/progress.h"
#include "train/start/prepared.h"
#include "train/step.h"

namespace danlu::train {

struct Begun {
  TrainState state;
  RunProgress progress;
  int64_t consumed_samples = 0;    ///< by the run that is gone on from
  bool evaluation_is_due = false;  ///< a signal came in its midst
  Json stream_state = nullptr;     ///< as data::StepStream::state() gave it
  /// The model that the objective measures against, where that is a second one.
  std::shared_ptr<const FrozenModel> reference = {};
};

/// Loads or initialises the model and restores what the checkpoint has. Errors: UsageError where
/// nothing is trained; as models::load_model, checkpoint::load_optimizer and restore_continued.
/// Collective.
Begun begin_training(const Prepared& run);

/// A model of `source` that answers beside the one that is trained, on the same mesh and shared by
/// its ranks alike. adapter: of it, or empty. quantisation: of what is held in NF4. Errors: as
/// models::load_model. Collective.
std::shared_ptr<const FrozenModel> load_frozen(const Prepared& run,
                                               const weights::CheckpointSource& source,
                                               const fs::path& adapter = {},
                                               std::optional<double> adapter_alpha = {},
                                               const models::Quantisation& quantisation = {});

}  // namespace danlu::train
