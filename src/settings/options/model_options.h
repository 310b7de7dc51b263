// settings/options/model_options.h: which model a training line names.
#pragma once
#include <optional>

#include "arch/model_config.h"
#include "base/options.h"
#include "settings/config.h"

namespace danlu::settings {

struct NamedModel {
  ModelSource source;
  arch::ModelConfig config;  ///< what it is
};

/// --load where it holds weights or nothing else could; the model of --model else; where a
/// pre-training names neither, the one that Megatron's flags describe. Reads headers only. Errors:
/// UsageError where none is named; ModelError where it has no weights and may not begin with random
/// ones, and as open_model. score: as ModelSource's.
NamedModel model_to_train(const Options& options, Task task,
                          const std::optional<arch::ScoreHead>& score = {});

/// The same of a training that is planned, for which a description is enough, be it a config.json
/// alone. `may_load`: there is a --load beside --model. Errors: the same, but for weights that are
/// not there.
NamedModel model_to_plan(const Options& options, Task task, bool may_load,
                         const std::optional<arch::ScoreHead>& score = {});

}  // namespace danlu::settings
