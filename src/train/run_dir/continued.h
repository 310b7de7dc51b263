// train/run_dir/continued.h: going on where another program's checkpoint stopped.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "train/settings.h"
#include "train/step.h"
#include "weights/convert/checkpoint_source.h"

namespace danlu::train {

/// What a Megatron or native checkpoint says of the training that wrote it.
struct Continued {
  int64_t step = 0, consumed_samples = 0;
  weights::OptimizerState optimizer;
  /// F32 weights are their own masters.
  std::shared_ptr<const weights::TensorSource> model;
};

/// What the run that begins with `source` continues, as Megatron does: everything, unless the user
/// said --finetune or --no-load-optim, or the checkpoint is a release or holds weights alone; then
/// nullopt. `origin`, the banner's line on weights, gets what is continued or why nothing is. An
/// optimizer or schedule other than the run's, which `identity` describes, is told as a warning.
/// Errors: as weights::open_checkpoint_source with an optimizer.
std::optional<Continued> continued_from(const TrainConfig& config,
                                        const weights::CheckpointSource& source,
                                        const Json& identity, std::string& origin);

/// Steps, Adam's state and masters into `state`; returns the samples consumed so far.
/// Errors: ModelError naming a tensor that is missing or of another shape; UsageError if the plan's
/// steps are done.
int64_t restore_continued(const Continued& continued, const RunPlan& plan,
                          const TrainConfig& config, TrainState& state);

}  // namespace danlu::train
