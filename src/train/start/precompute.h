// train/start/precompute.h: a reference that has said all it has to say before the first step.
#pragma once
#include "train/prepare_data.h"
#include "train/start/begin.h"
#include "train/start/prepared.h"

namespace danlu::train {

/// Whether an earlier run has left what --precompute_ref_log_probs asks for in the cache, by the
/// content of the data and the reference's weights. Collective.
bool finds_precomputed(const Prepared& run);

/// The run's data; with --precompute_ref_log_probs each sample has the reference's
/// log-probabilities, from the cache or computed now, and `begun` has no reference any more.
/// Errors: UsageError for data with pictures; IoError where the cache cannot be written.
/// Collective.
PreparedData precompute_reference(const Prepared& run, Begun& begun);

}  // namespace danlu::train
