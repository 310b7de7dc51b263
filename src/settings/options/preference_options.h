// settings/options/preference_options.h: which loss of answers that are compared a line asks for.
#pragma once
#include <string>

#include "base/options.h"
#include "settings/objective_config.h"

namespace danlu::settings {

/// What --loss_type says, in lower case.
std::string loss_type_of(const Options& options, const std::string& fallback);

/// Errors: UsageError, always: the method has no such loss. known: those that it has.
[[noreturn]] void refuse_loss(const Options& options, const std::string& method,
                              const std::string& loss, const std::string& known);

/// The objectives by these names. loss: loss_type_of(). Errors: UsageError as refuse_loss, for
/// terms that other systems add to this loss, and for a beta that is none.
PreferenceConfig dpo_from(const Options& options, const std::string& loss);
PreferenceConfig simpo_from(const Options& options, const std::string& loss);
PreferenceConfig cpo_from(const Options& options, const std::string& loss);
PreferenceConfig orpo_from(const Options& options, const std::string& loss);
UnpairedConfig kto_from(const Options& options);

/// Errors: UsageError where the loss cannot be smoothed.
void take_smoothing(const Options& options, PreferenceConfig& config);

}  // namespace danlu::settings
