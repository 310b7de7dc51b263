// train/start/meet.h: the ranks of a run meet, and agree on what only one of them may decide.
#pragma once
#include "parallel/ranks.h"
#include "train/settings.h"

namespace danlu::train {

/// The ranks of the run; of a dry run, this process alone. Errors: as Ranks.
Ranks connect(const TrainConfig& config);

/// `own` with rank 0's directory, into which all write, and the checkpoint that rank 0 goes on
/// from. From here on rank 0 speaks for all: the others show errors alone. Collective.
TrainConfig agree(const TrainConfig& own, const Ranks& ranks);

}  // namespace danlu::train
