// cli/commands/commands.h: the option tables of all verbs, and the bodies of those without tensors.
// One pair (or one line, for an engine verb) each; keep the order of src/cli/registry.cpp.
#pragma once
#include "base/options.h"

namespace danlu::cli {

OptionTable infer_options();
OptionTable chat_options();
OptionTable completion_options();
int run_completion(const Options& options);

}  // namespace danlu::cli
