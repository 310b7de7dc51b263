// train/run_dir/save.h: checkpoints of a running job, and the links to them.
#pragma once
#include <cstdint>
#include <filesystem>
#include <vector>

#include "settings/config.h"

namespace danlu::train {

struct Run;

/// Begins checkpoint-<step>, once an earlier one is whole. Errors: as require_finite, before
/// anything is written; IoError.
void begin_checkpoint(Run& run);
/// Where the one begun is whole, settles what depends on it; waits: until it is. Errors: IoError.
void go_on_saving(Run& run, bool waits);

/// Points `last` at `newest` and `best` at that of `best_step`, if it is there, and deletes
/// superfluous ones but for those of `in_use`: of the steps `as_best`, which were saved for their
/// evaluation alone, those that are no longer the best, once that is whole. Where that fails it
/// says what stays, since the newest is whole. False where the run's directory is gone.
bool settle_checkpoints(const settings::OutputConfig& output, const std::filesystem::path& newest,
                        int64_t best_step, std::vector<std::filesystem::path> in_use = {},
                        const std::vector<int64_t>& as_best = {});

}  // namespace danlu::train
