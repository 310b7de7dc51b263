// train/run_dir/resume_everywhere.h: the checkpoint that all machines go on from, whether they
// share their directories or do not.
#pragma once
#include <optional>

#include "checkpoint/checkpoint.h"
#include "train/ranks.h"
#include "train/run_dir/storage.h"
#include "train/settings.h"

namespace danlu::train {

/// As find_checkpoint, the same on every rank. Where several keep the run's directory, with `auto`
/// the newest checkpoint that is whole at every keeper, which has what its ranks read of it;
/// warnings say which were passed over, and what each keeper lacks of them. One named explicitly is
/// the one or none. Collective. Errors: also IoError naming the machines, the files that they lack
/// and where those lie.
std::optional<checkpoint::Loaded> find_checkpoint_everywhere(const TrainConfig& config,
                                                             const Ranks& ranks,
                                                             const Shared& run_dir);

}  // namespace danlu::train
