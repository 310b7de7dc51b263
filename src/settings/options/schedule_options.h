// settings/options/schedule_options.h: the learning rate of each step.
#pragma once
#include "base/options.h"
#include "settings/config.h"

namespace danlu::settings {

/// `tuner` decides the default rate. Errors: UsageError for a shape that has another name.
ScheduleChoice schedule_from(const Options& options, Tuner tuner);

}  // namespace danlu::settings
