// hub/listing.h: what a hub says of a repository: its files with sizes and hashes.
#pragma once
#include <string>

#include "hub/client.h"
#include "hub/repository.h"

namespace danlu::hub {

/// All files of the revision; names are safe. Hugging Face: one request where the hub says sizes
/// and hashes with it, else the pages of its tree. ModelScope: its file list, data sets by pages.
/// Errors: of the repository's kind (no such repository or revision, gated, no right); CommError.
Listing list_files(Client& client, const Repository& repository);

std::string file_url(const std::string& endpoint, const Repository& repository,
                     const std::string& commit, const std::string& path);

/// What `failure` of a request about `repository` (or its file `path`) means to its user.
[[noreturn]] void throw_of_hub(const ClientSettings& settings, const Repository& repository,
                               const std::string& path, const Failure& failure);

}  // namespace danlu::hub
