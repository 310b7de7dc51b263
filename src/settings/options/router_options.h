// settings/options/router_options.h: how routers of experts are kept in balance.
#pragma once
#include "arch/model_config.h"
#include "base/options.h"
#include "settings/router_training.h"

namespace danlu::settings {

/// Errors: UsageError for terms of the loss, room or biases that the model's routers do not have,
/// for room where the context axis divides sequences, and for a term over all layers of a model
/// that a pipeline or the context axis divides.
RouterTraining router_training_from(const Options& options, const arch::ModelConfig& model);

}  // namespace danlu::settings
