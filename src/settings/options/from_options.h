// settings/options/from_options.h: the one place where option names become a TrainConfig.
#pragma once
#include <string>

#include "base/options.h"
#include "settings/config.h"

namespace danlu::settings {

/// `verb`: sft, pretrain, train, posttrain or rlhf; it decides defaults. DeepSpeed files, FSDP
/// words, model short names and Megatron's retyped architecture are resolved here, and notices
/// printed. Errors: UsageError (flags), ModelError (no such model), IoError.
TrainConfig config_from_options(const std::string& verb, const Options& options);

/// Instead of a training command's name: of a plan for which none is named, whose lengths may be
/// more than the model's.
inline constexpr const char* kPlanVerb = "plan";

struct PlannedTraining {
  TrainConfig config;
  arch::ModelConfig model;
};
/// The same of a training that is planned and not begun, by `ranks` processes, up to `of_machine`
/// on each machine. A description of its model is enough, and nothing else that it reads and writes
/// is looked for: data sets, the directories of the run and of what is offloaded.
/// Errors: as config_from_options.
PlannedTraining planned_training(const std::string& verb, const Options& options, int64_t ranks,
                                 int64_t of_machine);

}  // namespace danlu::settings
