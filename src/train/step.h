// train/step.h: one optimizer step: forward and backward of every micro-batch, clipping, update.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "data/batch_stream.h"
#include "models/causal_lm.h"
#include "optim/adamw.h"
#include "optim/grad_buffer.h"
#include "optim/loss_scaler.h"
#include "train/action_trace.h"
#include "train/objective.h"
#include "train/settings.h"
#include "train/stage_links.h"

namespace danlu::train {

/// The state of a training, which every step changes.
struct TrainState {
  std::unique_ptr<models::CausalLM> model;
  std::shared_ptr<const Objective> objective = language_modelling();
  std::unique_ptr<optim::GradBuffer> gradients;
  std::unique_ptr<optim::AdamW> optimizer;
  std::unique_ptr<StageLinks> links;
  ActionObserver* observer = nullptr;  ///< hears of every action of the passes; may be nullptr
  optim::LossScaler loss_scaler;
  int64_t step = 0;  ///< finished steps, skipped ones included
  int64_t bad_steps_in_row = 0;
  int64_t skipped_steps = 0;
  int64_t tokens_seen = 0;
};

struct StepResult {
  double loss = 0;                        ///< the objective's sum / weight of the whole step
  std::map<std::string, double> metrics;  ///< those of the objective and of layers, by name
  double grad_norm = 0;                   ///< before clipping
  double lr = 0;
  double loss_scale = 1;
  int64_t num_tokens = 0, num_targets = 0;  ///< that are trained on
  int64_t num_samples = 0;
  int64_t num_visual_tokens = 0;  ///< of num_tokens those that stand for pictures and videos
  double pixels_wait_s = 0;       ///< seconds in which this rank waited for pixels
  bool skipped = false;  ///< loss or gradient is not finite: parameters and moments are untouched
  /// The step does not count: the caller takes it again with the same batches at the loss scale as
  /// it is now.
  bool repeats = false;
  std::vector<std::string> bad_parameters;  ///< names of some whose gradient was not finite
};

/// Throws NumericError that names the first trained weight or optimizer state of this rank that is
/// not finite, because such values must not be saved.
void require_finite(const TrainState& state);

/// Throws NumericError "[train] step <step>: <what>: the training has diverged", with a hint.
[[noreturn]] void throw_diverged(int64_t step, const std::string& what);

/// Takes one step. Its gradient is that of (sum over the objective's losses) / (weight of the whole
/// step), so it does not depend on the cut into micro-batches, but for means_of_micro_batches();
/// gradients are summed in f32. Dropout
/// follows from the seed, the step, the sample, the token's place in it, the module and the column.
/// Every rank of the model's mesh takes the step with its own batches and gets the same result, but
/// for pixels_wait_s and bad_parameters, which each rank has of its own.
/// While the loss scale is searched for, an overflow asks for the step again (StepResult::repeats).
/// Terms that layers add to the loss are in the gradient and in `metrics`, not in `loss`.
/// Errors: DataError if the objective gives the whole step the weight 0; NumericError if gradients
/// overflow at the smallest loss scale while the scale is searched for; what the model and
/// Objective::prepare throw.
StepResult run_step(TrainState& state, const data::StepBatches& batches, const TrainConfig& config,
                    const settings::ScheduleConfig& schedule);

}  // namespace danlu::train
