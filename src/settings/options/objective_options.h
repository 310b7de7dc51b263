// settings/options/objective_options.h: which objective a training line asks for.
#pragma once
#include <string>
#include <vector>

#include "arch/model_config.h"
#include "base/options.h"
#include "settings/objective_config.h"

namespace danlu::settings {

/// `verb` rlhf: by --rlhf_type; else by --stage. Errors: UsageError for losses that the objective
/// has not, and for flags that contradict each other.
ObjectiveConfig objective_from(const std::string& verb, const Options& options);

/// The options of objectives that this one does not read.
std::vector<const char*> flags_without_use(const ObjectiveConfig& objective);

/// Errors: ModelError where the reference's vocabulary is not the model's.
void check_reference(const Options& options, const ObjectiveConfig& objective,
                     const arch::ModelConfig& model);

}  // namespace danlu::settings
