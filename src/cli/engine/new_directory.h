// cli/engine/new_directory.h: output directories that must not overwrite anything by accident.
#pragma once
#include "base/error.h"
#include "base/file.h"

namespace danlu::cli {

/// Errors: UsageError if `path` exists and is not empty, unless `overwrite`.
inline void require_new_directory(const fs::path& path, bool overwrite) {
  if (overwrite || !fs::exists(path) || (fs::is_directory(path) && fs::is_empty(path))) return;
  throw UsageError(
      "[--output] " + path.string() + " exists and is not empty",
      {"choose another directory, or give --overwrite", "请换一个目录，或加 --overwrite"});
}

/// The directory that holds `path`, itself new or not: it must be writable before long work begins.
inline fs::path parent_of(const fs::path& path) {
  return fs::absolute(path / "").parent_path().parent_path();
}

}  // namespace danlu::cli
