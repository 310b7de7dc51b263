// settings/options/teacher.h: what a teacher's config.json shows to be wrong.
#pragma once
#include "arch/model_config.h"
#include "settings/config.h"

namespace danlu::settings {

/// Checks the teacher of gkd. Errors: as open_model; UsageError that names the teacher, where the
/// processes of the run cannot cut it.
void check_teacher(const TrainConfig& config, const arch::ModelConfig& model);

}  // namespace danlu::settings
