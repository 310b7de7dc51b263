#include "optim/parameter.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/pattern.h"
#include "parallel/agree.h"

namespace danlu::optim {
namespace {

Pattern compile_group_pattern(const GroupRule& rule) {
  try {
    return Pattern(rule.pattern);
  } catch (const PatternError& error) {
    throw UsageError(tr("[{}] {}", rule.flag, error.what()));
  }
}

}  // namespace

std::vector<ParameterSettings> settings_of(const std::vector<const Parameter*>& parameters,
                                           const GroupConfig& config,
                                           const parallel::Group& stages) {
  std::vector<ParameterSettings> settings;
  settings.reserve(parameters.size());
  for (const Parameter* parameter : parameters) {
    const bool decays = config.decay_rule == DecayRule::kAll || parameter->tensor.dim() >= 2;
    settings.push_back({1.0, decays ? config.weight_decay : 0.0});
  }
  for (const GroupRule& rule : config.rules) {
    const Pattern pattern = compile_group_pattern(rule);
    bool matched = false;
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (!pattern.is_found_in(parameters[i]->name())) continue;
      matched = true;
      settings[i].lr_scale = rule.lr_scale;
      if (rule.weight_decay >= 0) settings[i].weight_decay = rule.weight_decay;
    }
    if (parallel::largest_of(stages, matched || rule.may_match_nothing ? 1 : 0) == 0) {
      throw UsageError(tr("[{}] pattern '{}' matches none of the {} trainable parameters",
                          rule.flag, rule.pattern, parameters.size()),
                       parameters.empty() ? std::string()
                                          : tr("names look like {}", parameters.front()->name()));
    }
  }
  return settings;
}

}  // namespace danlu::optim
