// hub/missing.h: a model or data set that a command names and this machine may not have yet.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "hub/repository.h"

namespace danlu::hub {

/// What the line says of models and data sets that are in no cache. Set once, before any is looked
/// for, by who reads the command line.
struct FetchMissing {
  bool allowed = false;  ///< else the error says what to type
  /// Asked first, where the environment chooses none.
  Hub first = Hub::kHuggingFace;
};
void set_fetch_missing(const FetchMissing& policy);
const FetchMissing& fetch_missing();

/// One thing's names; empty: the hub does not have it.
struct NamesOnHubs {
  std::string huggingface, modelscope;
};

/// Looks both caches through, the first hub's first; what is in neither is fetched into the cache
/// of the first hub that has it, if the policy allows and no variable forbids it, and a line says
/// what from where. Nullopt: it is not here. Places looked at are appended to `looked`. Errors: as
/// download.
std::optional<std::filesystem::path> find_or_fetch(Kind kind, const NamesOnHubs& names,
                                                   std::vector<std::string>& looked);

/// "danlu download …": what to type for it, and what forbids it.
std::string how_to_fetch(Kind kind, const NamesOnHubs& names);

}  // namespace danlu::hub
