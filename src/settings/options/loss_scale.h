// settings/options/loss_scale.h: what the options say of fp16's loss scale.
#pragma once
#include "base/options.h"
#include "settings/config.h"

namespace danlu::settings {

/// fixed_scale is left where --loss_scale is a word of ms-swift's.
LossScaleConfig loss_scale_from(const Options& options);

/// Whether --loss_scale is a word that says what is learnt, not a scale.
bool names_learnt_part(const Options& options);
/// What it says. Errors: UsageError for a value that is neither a number of at least 0 nor such a
/// word.
text::TrainedPart learnt_from(const Options& options);

/// Says that a scale is above what gradients in fp16 bear, and what is done about it.
void report_loss_scale(const TrainConfig& config);

}  // namespace danlu::settings
