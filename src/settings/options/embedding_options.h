// settings/options/embedding_options.h: what a line says of a training of vectors of texts.
#pragma once
#include <filesystem>

#include "arch/model_config.h"
#include "base/options.h"
#include "settings/config.h"

namespace danlu::settings {

/// Errors: UsageError for a loss that there is not, and for --mrl_dims that are no sizes with
/// weights.
void take_embedding(const Options& options, ObjectiveConfig& config);

/// Whether a training of the model in that directory writes conversations by the chat template,
/// where the line does not say it: as embedded_by_template has it, else yes, as ms-swift does.
bool embeds_by_template(const std::filesystem::path& model);

/// What follows for the rest of the run: a head of the vocabulary that is not tied is frozen, since
/// vectors know nothing of it and decay would change it; where the rows of a micro-batch are
/// compared with each other, it stays one pass. Warns where nothing is compared. Errors: UsageError
/// for --mrl_dims beyond the hidden size. REQUIRES: config has its batch and its data.
void fit_embedding(const Options& options, const arch::ModelConfig& model, TrainConfig& config);

}  // namespace danlu::settings
