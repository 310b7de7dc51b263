// hub/cache.h: where the caches of the hubs' own tools keep a repository, so that what either
// fetched the other finds.
#pragma once
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "hub/repository.h"

namespace danlu::hub {

/// CACHE/models--org--name at Hugging Face, CACHE/models/org--name at ModelScope.
std::filesystem::path repository_folder(const std::filesystem::path& cache,
                                        const Repository& repository);

/// What `cache` has of it: the snapshot of the revision that is named; without one, that of the
/// default branch, else the newest. ModelScope's older layouts too (hub/models/org/name, dots of
/// names as "___"). Places looked at are appended to `looked`. Never throws.
std::optional<std::filesystem::path> find_in_cache(const std::filesystem::path& cache,
                                                   const Repository& repository,
                                                   std::vector<std::string>& looked);

}  // namespace danlu::hub
