// cli/commands/mm_flags.h: names of `danlu mm-convert`'s flags that its option table and its body
// share.
#pragma once
#include <string>

namespace danlu::cli {

/// Prefixes of the flags that say how a checkpoint is cut.
inline const std::string kMmParallel = "cfg.parallel_config",
                         kMmSource = "cfg.source_parallel_config",
                         kMmTarget = "cfg.target_parallel_config";

}  // namespace danlu::cli
