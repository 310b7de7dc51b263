// arch/prediction.h: layers after the last one, which predict tokens further ahead (multi-token
// prediction, DeepSeek-V3).
#pragma once
#include <string>

#include "arch/model_config.h"

namespace danlu::arch {

/// Whether a tensor of that name in files belongs to one of the layers that
/// config.experts.prediction_layers counts: those have the numbers after the last layer's.
bool is_of_prediction_layer(const ModelConfig& config, const std::string& name);

/// The figure of the layer that predicts `depth` >= 1 tokens further: "mtp_1_loss", as Megatron's.
std::string prediction_loss_name(int64_t depth);

}  // namespace danlu::arch
