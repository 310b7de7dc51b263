// settings/objective_difference.h: in what two runs' objectives differ, in words for users.
#pragma once
#include <string>

#include "base/json.h"

namespace danlu::settings {

/// "KEY: VALUE then, VALUE now".
std::string difference_of(const std::string& key, const Json& then, const Json& now);

/// The same of each value of two objective_identity()s that differ, with the flags that say it:
/// "objective.policy.temperature: 1.0 then, 0.9 now (--temperature)".
std::string objective_difference(const Json& then, const Json& now);

}  // namespace danlu::settings
