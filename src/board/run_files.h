// board/run_files.h: what else a run's directory tells: settings, checkpoints, log, answers. Names
// of files never come from who asks, but for one of log_names().
#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"

namespace danlu::board {

/// Whether a directory is a run's: it holds a logging.jsonl, or a train.log with the settings.
bool is_run(const std::filesystem::path& directory);

/// {"args": every option, "given": the names of those that the user gave, "verb": "sft"}; empty
/// objects where the files are not there or no JSON.
Json settings_of(const std::filesystem::path& run);

/// [{"name", "step", "complete", "resumable", "bytes", "changed" (ms since 1970), "best", "last"}],
/// by step. The DONE of each is read, no weights.
Json checkpoints_of(const std::filesystem::path& run);

/// memory.json and all_results.json as objects, where they are there.
Json results_of(const std::filesystem::path& run);

/// train.log and rank-N.log, those that are there.
std::vector<std::string> log_names(const std::filesystem::path& run);

/// {"name", "text": whole lines of the last `most_bytes`, "cut": whether there is more before}.
/// Nothing if `name` is none of log_names().
std::optional<Json> log_tail(const std::filesystem::path& run, const std::string& name,
                             size_t most_bytes);

/// Up to `count` answers of samples.jsonl (--log_completions) that stand before byte `before` (0:
/// the end of the file), newest first, and where to go on: {"samples": […], "before": B} (0: no
/// more).
Json samples_of(const std::filesystem::path& run, uint64_t before, size_t count);

}  // namespace danlu::board
