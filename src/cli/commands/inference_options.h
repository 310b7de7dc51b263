// cli/commands/inference_options.h: options that every verb which talks to a model shares.
#pragma once
#include <vector>

#include "base/options.h"

namespace danlu::cli {

/// Model, adapters, template, dtype.
std::vector<OptionSpec> model_options();
/// Sampling and lengths.
std::vector<OptionSpec> sampling_options();
/// What other systems have and Danlu does not: taken with a notice, or refused.
std::vector<OptionSpec> foreign_inference_options();
/// Concatenation, in order.
std::vector<OptionSpec> joined(std::vector<std::vector<OptionSpec>> groups);

}  // namespace danlu::cli
