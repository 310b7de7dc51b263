// settings/run_plan.h: the arithmetic of a run: how many samples make a step, how many steps the
// run has.
#pragma once
#include <cstdint>
#include <string>

#include "data/batch_stream.h"
#include "settings/config.h"

namespace danlu::settings {

struct RunPlan {
  int64_t micro_batch_size = 1, accumulation = 1, global_batch_size = 1;
  int64_t num_samples = 0;  ///< of one epoch
  int64_t steps_per_epoch = 0;
  int64_t total_steps = 0;
  /// Not whole where steps run on over the end of an epoch (LastBatch::kWrap).
  double steps_of_an_epoch = 0;
  /// The epochs that the steps go through; 0 if an epoch has no step.
  double epochs() const {
    return steps_of_an_epoch > 0 ? static_cast<double>(total_steps) / steps_of_an_epoch : 0;
  }
  ScheduleConfig schedule;
  std::string batch_arithmetic;  ///< "1 sample × 16 accumulation × 1 process = 16 samples a step"
};

/// Micro-batches of a step on each rank: as asked, else so many that a step has at least 16
/// samples.
int64_t accumulation_of(const BatchConfig& batch);
/// Samples of a step over all ranks.
int64_t samples_of_step(const BatchConfig& batch);

/// Steps that the answers drawn at one time are divided into, where a line says how many answers
/// or micro-batches of each rank are drawn at one time. Where these are a part of a step it is 1:
/// weights stay within a step, so that several rollouts are the same as one, but where answers to
/// several prompts are compared; a notice says so. Errors: UsageError if they are no whole steps,
/// and no part of one.
int64_t steps_of_rollout(const TrainConfig& config);

/// Errors: UsageError where answers are drawn and a rollout has no whole groups of them.
void require_whole_groups(const TrainConfig& config);

/// `last_batch`: how an epoch of `num_samples` ends. Errors: UsageError if the schedule does not
/// fit.
RunPlan plan_run(const TrainConfig& config, int64_t num_samples, data::LastBatch last_batch);

}  // namespace danlu::settings
