// base/lfs_pointer.h: the small text that stands in a clone where Git LFS has not fetched the file.
#pragma once
#include <filesystem>
#include <string_view>

namespace danlu {

/// Errors: ModelError if `file` is a Git LFS pointer; `what` says what should be there ("the
/// weights"). Silent for everything else, files that cannot be read included: the reader that comes
/// next says why. Source: https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md
void refuse_lfs_pointer(const std::filesystem::path& file, std::string_view what);

/// The same of data. Errors: DataError.
void refuse_lfs_pointer_as_data(const std::filesystem::path& file);

/// Whether `file` is a pointer; false if it cannot be read.
bool is_lfs_pointer(const std::filesystem::path& file);

}  // namespace danlu
