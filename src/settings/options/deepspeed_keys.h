// settings/options/deepspeed_keys.h: the keys of DeepSpeed's configuration, by section.
#pragma once
#include <string>
#include <vector>

#include "base/json.h"

namespace danlu::settings {

/// The keys of `json`, an object, that DeepSpeed has and that change nothing here, as
/// "section/key". Warns about keys that nobody knows. Errors: UsageError for one that resembles a
/// key of its section, which it names.
std::vector<std::string> ignored_deepspeed_keys(const Json& json);

}  // namespace danlu::settings
