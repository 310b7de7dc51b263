// settings/options/task_options.h: what is trained: the task, and which parameters.
#pragma once
#include <string>

#include "base/options.h"
#include "settings/config.h"

namespace danlu::settings {

/// --stage, by default of `verb`. Errors: UsageError for a task that is not built in.
Task task_from(const std::string& verb, const Options& options);

/// --tuner, by default of the task. Errors: UsageError for quantised base weights.
Tuner tuner_from(const std::string& verb, Task task, const Options& options);

}  // namespace danlu::settings
