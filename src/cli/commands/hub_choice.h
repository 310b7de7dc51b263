// cli/commands/hub_choice.h: the flag of ms-swift that names the hub which models and data sets
// come from.
#pragma once
#include <string>

#include "base/options.h"

namespace danlu::cli {

/// --use_hf.
OptionSpec hub_choice_option(const std::string& group);

/// Has --use_hf, where the line gives it, mean USE_HF for this process and those it starts.
void take_hub_choice(const OptionTable& table, const Options& options);

}  // namespace danlu::cli
