// settings/options/objective_options.h: which objective a training line asks for.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "arch/model_config.h"
#include "base/options.h"
#include "settings/config.h"
#include "settings/objective_config.h"

namespace danlu::settings {

/// `verb` rlhf: by --rlhf_type; else by --stage. Errors: UsageError for losses that the objective
/// has not, and for flags that contradict each other.
ObjectiveConfig objective_from(const std::string& verb, const Options& options);

/// Whether the loss of a step is the mean of its micro-batches' means: as --loss_average says, or
/// the profile, which is of sft alone. Errors: UsageError where it is asked for and also the other
/// mean, or an objective has no such mean.
bool averages_micro_batches(const Options& options, Task task, const ObjectiveConfig& objective);

/// Which part of each conversation is learnt: what the line says, and of gkd, where it says
/// nothing, the last answer, as in ms-swift. Errors: as learnt_from; UsageError for parts before
/// which there is no prompt that the model could answer itself.
text::TrainedPart learnt_of(const Options& options, const ObjectiveConfig& objective);

/// Whether of answers that are compared those of earlier rounds are learnt too: where the line says
/// `--loss_scale default`, and in ms-swift's ORPO. learnt: as learnt_of gave it.
bool learns_all_rounds(const Options& options, const ObjectiveConfig& objective,
                       const text::TrainedPart& learnt);

/// The head that a run of that objective trains where the model has none yet, as the system whose
/// line is typed keeps it; nullopt: the vocabulary's.
std::optional<arch::ScoreHead> score_from(const Options& options, const ObjectiveConfig& objective);

/// Whether conversations are written by a template; of vectors of texts, where the line does not
/// say it, as embedded_by_template has it of the model's directory; of rankings not where its
/// record says that they were trained without one. Errors: UsageError for
/// --use_chat_template false where answers are learnt, or beside a template.
bool uses_template(const Options& options, Task task, const ObjectiveConfig& objective,
                   const std::filesystem::path& model);

/// The options of objectives that this one does not read.
std::vector<const char*> flags_without_use(const ObjectiveConfig& objective);

/// Errors: as open_model of reward_model_at, of each reward model; UsageError for adapters that
/// PPO's critic would begin as, where its own weights are trained.
void check_judges(const TrainConfig& config);

/// Errors: ModelError where the reference's vocabulary is not the model's.
void check_reference(const Options& options, const ObjectiveConfig& objective,
                     const arch::ModelConfig& model);

}  // namespace danlu::settings
