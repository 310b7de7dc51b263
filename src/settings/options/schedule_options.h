// settings/options/schedule_options.h: the learning rate of each step.
#pragma once
#include "base/options.h"
#include "settings/config.h"

namespace danlu::settings {

/// Whether the line's defaults are those of Hugging Face's Trainer or of a program built on it.
bool is_of_trainer(const Options& options);

/// The Trainer's "constant" has no warm-up, whatever the line says of one; "constant_with_warmup"
/// has.
bool leaves_warmup_out(const Options& options);

/// `tuner` decides the default rate. Errors: UsageError for a shape that has another name.
ScheduleChoice schedule_from(const Options& options, Tuner tuner);

}  // namespace danlu::settings
