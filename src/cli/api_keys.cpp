#include "cli/api_keys.h"

#include <algorithm>

#include "base/error.h"
#include "base/message.h"

namespace danlu::cli {

std::vector<std::string> api_keys_from(const Options& options) {
  if (!options.is_set("api_key")) return {};
  std::vector<std::string> keys = options.get_list("api_key");
  if (keys.empty() ||
      std::any_of(keys.begin(), keys.end(), [](const auto& k) { return k.empty(); })) {
    throw UsageError(tr("[{}] the key is empty", options.given_as("api_key")),
                     tr("give a key, or leave the flag out if nobody is to need one"));
  }
  return keys;
}

}  // namespace danlu::cli
