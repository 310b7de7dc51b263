// train/start/meet.h: the ranks of a run meet, and agree on what only one of them may decide.
#pragma once
#include "train/ranks.h"
#include "train/settings.h"

namespace danlu::train {

/// The ranks of the run; of a dry run, this process alone. Errors: as Ranks.
Ranks connect(const TrainConfig& config);

/// `own` with rank 0's directory, into which all write, and the checkpoint that rank 0 goes on
/// from. The ranks behind rank 0 leave speaking to it. Collective.
TrainConfig agree(const TrainConfig& own, const Ranks& ranks);

}  // namespace danlu::train
