// settings/options/loss_scale.h: what the options say of fp16's loss scale.
#pragma once
#include "base/options.h"
#include "settings/config.h"

namespace danlu::settings {

LossScaleConfig loss_scale_from(const Options& options);

/// Says that a scale is above what gradients in fp16 bear, and what is done about it.
void report_loss_scale(const TrainConfig& config);

}  // namespace danlu::settings
