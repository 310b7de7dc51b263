// cli/engine/model_files.h: which files an answering model was read from, to know it again.
#pragma once
#include <vector>

#include "base/json.h"
#include "cli/engine/load_for_inference.h"

namespace danlu::cli {

/// [path, bytes, time] of every file of weights and configuration, sorted.
Json files_of_model(const InferenceModel& loaded);
/// The same of models in these directories, or lone files; empty ones are left out.
Json files_of_models(const std::vector<fs::path>& directories);

}  // namespace danlu::cli
