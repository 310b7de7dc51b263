// cli/api_keys.h: the keys that requests to a server must bring.
#pragma once
#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/message.h"
#include "base/options.h"

namespace danlu::cli {

/// --api_key's; empty: none is needed. variable: of the environment, which holds them, too; "" for
/// none. Errors: UsageError for an empty key or variable, as a script gives whose own variable is
/// not set: the server would be open to everybody. (Here, since the engine and the program both
/// need it.)
inline std::vector<std::string> api_keys_from(const Options& options,
                                              const std::string& variable = {}) {
  if (!options.is_set("api_key")) {
    const char* const value = variable.empty() ? nullptr : std::getenv(variable.c_str());
    if (!value || *value != '\0') return {};
    throw UsageError(tr("[{}] the key is empty", "$" + variable),
                     tr("give a key, or unset {} if nobody is to need one", variable));
  }
  std::vector<std::string> keys = options.get_list("api_key");
  const auto is_empty = [](const std::string& key) { return key.empty(); };
  if (keys.empty() || std::any_of(keys.begin(), keys.end(), is_empty)) {
    throw UsageError(tr("[{}] the key is empty", options.given_as("api_key")),
                     tr("give a key, or leave the flag out if nobody is to need one"));
  }
  return keys;
}

}  // namespace danlu::cli
