// arch/prediction.h: layers behind the last one, which predict tokens further ahead (multi-token
// prediction, DeepSeek-V3).
#pragma once
#include <string>

#include "arch/model_config.h"

namespace danlu::arch {

/// Whether a tensor of that name in files belongs to one of the layers that
/// config.experts.prediction_layers counts: those have the numbers behind the last layer's.
bool is_of_prediction_layer(const ModelConfig& config, const std::string& name);

}  // namespace danlu::arch
