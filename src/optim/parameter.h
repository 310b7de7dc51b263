// optim/parameter.h: settings of the parameters that an optimizer is given.
#pragma once
#include <string>
#include <vector>

#include "parallel/group.h"
#include "parallel/parameter.h"
#include "settings/optimizer.h"

namespace danlu::optim {

/// Optimizers take live leaves, contiguous, f32|bf16|f16, and update them in place.
using parallel::Parameter;
using settings::AdamWConfig, settings::DecayRule, settings::GroupConfig, settings::GroupRule;

/// The settings of one parameter.
struct ParameterSettings {
  double lr_scale = 1.0;
  double weight_decay = 0.0;
};

/// One entry per parameter; `others`: groups of ranks that have other parameters of the model, such
/// as those of other stages and experts of their own. A rule is to match somewhere. Collective over
/// them, one after the other. Errors: UsageError for a pattern that is no regular expression or
/// matches nothing.
std::vector<ParameterSettings> settings_of(const std::vector<const Parameter*>& parameters,
                                           const GroupConfig& config,
                                           const std::vector<const parallel::Group*>& others = {});

}  // namespace danlu::optim
