// settings/options/with_model.h: what the model's description says of the settings.
#pragma once
#include <cstdint>

#include "arch/model_config.h"
#include "base/options.h"
#include "settings/config.h"

namespace danlu::settings {

/// What follows for a pipeline from the layers that the model has. The members of TrainConfig and
/// MeshShape that have the same names.
struct PipelineWithModel {
  int64_t chunks = 1;
  bool ring = false;
  arch::PipelineOrder order = arch::PipelineOrder::kOneForwardOneBackward;
};

/// Checks what the description alone can tell to be wrong. Errors: UsageError.
PipelineWithModel check_with_model(const Options& options, const arch::ModelConfig& model,
                                   const TrainConfig& config);

}  // namespace danlu::settings
