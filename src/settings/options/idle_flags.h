// settings/options/idle_flags.h: flags that a user gave and that change nothing here.
#pragma once
#include <string>

#include "base/options.h"
#include "settings/config.h"

namespace danlu::settings {

/// A notice that is shown however many others there are: of what was asked for and is not to be
/// had.
void say_always(const std::string& text);

/// Prints a notice for every flag or file key that has no effect beside the others: a LoRA rank
/// with full training, a ratio where steps are given.
void report_idle_flags(const Options& options, const TrainConfig& config);

}  // namespace danlu::settings
