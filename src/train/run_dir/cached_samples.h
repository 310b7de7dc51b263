// train/run_dir/cached_samples.h: the samples of a run as rows of ids, for runs to come.
#pragma once
#include <filesystem>

#include "settings/config.h"
#include "train/prepare_data.h"

namespace danlu::train {

/// Errors: UsageError where the directory has samples already: of another split, some of these
/// might be held out here and trained on there.
void require_no_cached_samples(const settings::TrainConfig& config);

/// Writes train/rows.jsonl, and where rows are held out val/rows.jsonl, each row {"input_ids",
/// "labels"}. Errors: UsageError for samples that such rows cannot hold: of several segments, with
/// numbers or pictures beside their tokens; IoError.
void write_cached_samples(const settings::TrainConfig& config, const PreparedData& data);

}  // namespace danlu::train
