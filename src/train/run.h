// train/run.h: a whole training job, from configuration to a finished run directory.
#pragma once
#include <filesystem>
#include <memory>

#include "train/objective.h"
#include "train/settings.h"

namespace danlu::train {

/// Checks everything that can be checked, then loads weights, resumes if there is something to
/// resume, trains, saves. Returns the directory of the run, which is complete; empty where nothing
/// was to be trained (--dry_run). Errors: any danlu::Error. objective: nullptr: what the
/// configuration says.
std::filesystem::path run(const TrainConfig& config,
                          const std::shared_ptr<const Objective>& objective = nullptr);

}  // namespace danlu::train
