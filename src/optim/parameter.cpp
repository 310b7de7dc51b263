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
                                           const std::vector<const parallel::Group*>& others) {
  std::vector<ParameterSettings> settings;
  settings.reserve(parameters.size());
  for (const Parameter* parameter : parameters) {
    const bool decays = config.decay_rule == DecayRule::kAll || parameter->tensor.dim() >= 2;
    settings.push_back({1.0, decays ? config.weight_decay : 0.0});
  }
  for (const GroupRule& rule : config.rules) {
    const Pattern pattern = compile_group_pattern(rule);
    int64_t matched = rule.may_match_nothing ? 1 : 0;
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (!pattern.is_found_in(parameters[i]->name())) continue;
      matched = 1;
      settings[i].lr_scale = rule.lr_scale;
      if (rule.weight_decay >= 0) settings[i].weight_decay = rule.weight_decay;
    }
    for (const parallel::Group* group : others) matched = parallel::largest_of(*group, matched);
    if (matched == 0) {
      throw UsageError(tr("[{}] pattern '{}' matches none of the {} trainable parameters",
                          rule.flag, rule.pattern, parameters.size()),
                       parameters.empty() ? std::string()
                                          : tr("names look like {}", parameters.front()->name()));
    }
  }
  return settings;
}

}  // namespace danlu::optim
