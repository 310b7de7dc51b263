// cli/engine/rollout_progress.h: how far a killed `danlu rollout --output FILE` came, for the same
// request given again.
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "base/json.h"

namespace danlu::cli {

/// Beside FILE.partial while that grows.
std::filesystem::path progress_file_of(const std::filesystem::path& output);

struct RolloutProgress {
  size_t prompts = 0;  ///< that were asked and judged
  std::string rows;    ///< FILE.partial up to there
  Json counts;         ///< what the last report needs
};

/// Writes how far it came. false: the place takes no more files, and what was written before stays.
bool note_progress(const std::filesystem::path& output, size_t prompts, uint64_t bytes,
                   const Json& counts);

/// What a killed run of the same identity left; nothing if it is another's, or has no rows.
std::optional<RolloutProgress> earlier_progress(const std::filesystem::path& output,
                                                const std::string& identity);

}  // namespace danlu::cli
