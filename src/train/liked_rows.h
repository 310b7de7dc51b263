// train/liked_rows.h: whether rows of answers that are liked or not have both kinds.
#pragma once
#include "data/sample_source.h"
#include "train/settings.h"

namespace danlu::train {

/// Warns where all rows are of one kind: such a loss pulls one way alone. samples:
/// SampleKind::kUnpaired, also several in one. Errors: UsageError where the kinds that are there
/// weigh 0.
void check_liked_rows(const TrainConfig& config, const data::SampleSource& samples);

}  // namespace danlu::train
