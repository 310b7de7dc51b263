// train/run_dir/resume_everywhere.h: the checkpoint that all machines go on from, whether they
// share their directories or do not.
#pragma once
#include <optional>

#include "checkpoint/checkpoint.h"
#include "parallel/ranks.h"
#include "train/run_dir/storage.h"
#include "train/settings.h"

namespace danlu::train {

/// Finds what find_checkpoint finds, the same on every rank. Where several keep the run's
/// directory, each is given what its ranks read of the checkpoint and another has (hand_over.h; not
/// in a dry run): with `auto` the newest of which every file is somewhere, and warnings say which
/// were passed over and what nobody has of them; one named explicitly is the one or none.
/// Collective. Errors: also IoError naming the machines and the files of which nobody has one,
/// machines that have different checkpoints of one name, and a copy that fails.
std::optional<checkpoint::Loaded> find_checkpoint_everywhere(const TrainConfig& config,
                                                             const Ranks& ranks,
                                                             const Shared& run_dir);

}  // namespace danlu::train
