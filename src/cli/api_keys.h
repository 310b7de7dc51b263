// cli/api_keys.h: the keys that requests to a server must bring.
#pragma once
#include <string>
#include <vector>

#include "base/options.h"

namespace danlu::cli {

/// --api_key's; empty: none is needed. Errors: UsageError for an empty key, as a script gives whose
/// variable is not set: the server would be open to everybody.
std::vector<std::string> api_keys_from(const Options& options);

}  // namespace danlu::cli
