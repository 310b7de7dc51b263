// train/finish.h: how a run that has taken its steps ends.
#pragma once
#include "train/loop.h"

namespace danlu::train {

/// Puts the finished model into the run's directory, writes the reports and marks the run as done.
/// Errors: IoError. Collective.
void finish(Run& run);

}  // namespace danlu::train
