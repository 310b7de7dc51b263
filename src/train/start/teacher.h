// train/start/teacher.h: what a teacher must have in common with the model, asked before weights
// are read. All of it is of gkd alone.
#pragma once
#include <c10/core/Device.h>

#include "arch/model_config.h"
#include "train/prepare_data.h"

namespace danlu::train {

/// Errors: DeviceError where the device does not find the likeliest tokens, over which alone
/// distributions are compared, or entropies asked for.
void require_comparing(const TrainConfig& config, const at::Device& device);

/// Errors: ModelError where the teacher's tokens are others.
void require_teachers_tokens(const TrainConfig& config, const PreparedText& text);

/// Errors: UsageError for rows to which no answers are drawn; ModelError where rows have pictures
/// that the teacher does not read as the model does.
void require_teachable_rows(const TrainConfig& config, const arch::ModelConfig& model,
                            const PreparedText& text, const PreparedData& data);

}  // namespace danlu::train
