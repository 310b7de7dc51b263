// train/run_dir/storage.h: which directories the machines of a job have in common.
#pragma once
#include <filesystem>
#include <functional>
#include <vector>

#include "train/settings.h"

namespace danlu::train {

/// One directory of all ranks' machines, which may be several behind one name.
struct Shared {
  int64_t keeper = 0;                  ///< the first rank that sees the same one as this rank
  std::vector<int64_t> keepers = {0};  ///< of every one, ascending
  bool by_all() const { return keepers.size() == 1; }
};

/// Looks, not assumes: the first rank of every machine leaves a token in the directory, all look
/// for all of them, and the first of those that see one make()s it. Collective.
Shared find_shared(const std::filesystem::path& directory, const Ranks& ranks,
                   const std::function<void()>& make);

}  // namespace danlu::train
