// settings/options/prediction_options.h: what flags say about layers that predict further ahead.
#pragma once
#include "arch/model_config.h"
#include "base/options.h"
#include "settings/prediction_training.h"

namespace danlu::settings {

/// Makes `model` one whose network has them, if they are to be trained. Errors: UsageError for
/// another number than the model has, and for adapters, under which they stay as they are.
PredictionTraining prediction_training_from(const Options& options, bool has_adapters,
                                            arch::ModelConfig& model);

}  // namespace danlu::settings
