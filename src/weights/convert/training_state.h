// weights/convert/training_state.h: the optimizer state of a training checkpoint
// (RUN/checkpoint-<step>), as other formats keep one. docs/formats/run_directory.md says what the
// files hold.
#pragma once
#include <filesystem>

#include "arch/model_config.h"
#include "weights/convert/optimizer_state.h"

namespace danlu::weights {

/// The state in optim/, and the settings in trainer_state.json and data_state.json under
/// Megatron's names: rates, betas, decay, and the schedule counted in samples.
/// Errors: ModelError if there is no state, or one of adapters rather than of the whole model;
/// IoError, DataError for broken JSON files.
OptimizerState open_training_state(const std::filesystem::path& checkpoint,
                                   const arch::ModelConfig& config);

/// A run's schedule as Megatron's opt_param_scheduler holds it, counted in samples. `identity`: as
/// settings::run_identity, and as trainer_state.json keeps it.
Json megatron_schedule(const Json& identity, int64_t consumed_samples);

}  // namespace danlu::weights
