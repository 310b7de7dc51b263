// settings/options/recorded_settings.h: what a run writes down of the options that it was given.
#pragma once
#include "base/options.h"
#include "settings/config.h"

namespace danlu::settings {

/// config.args, settings, of_machine and of_start. REQUIRES: tuner, precision, data and profile of
/// `config` are set.
void record_settings(const Options& options, TrainConfig& config);

}  // namespace danlu::settings
