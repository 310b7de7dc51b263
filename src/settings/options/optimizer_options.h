// settings/options/optimizer_options.h: the optimizer and its parameter groups.
#pragma once
#include <string>
#include <vector>

#include "base/options.h"
#include "settings/optimizer.h"

namespace danlu::settings {

/// Without rules for groups of parameters.
AdamWConfig adamw_from(const Options& options);
/// rate: of parameters that no flag names, in its last form. Errors: UsageError for --param_groups
/// that is no list of rules, and for the rate of a part where `rate` is 0. `frozen`: patterns of
/// parameters that are not trained; the rate of such a part of a tower gets a notice, and no rule.
std::vector<GroupRule> group_rules_of(const Options& options, double rate,
                                      const std::vector<std::string>& frozen);

}  // namespace danlu::settings
