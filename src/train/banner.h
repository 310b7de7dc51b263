// train/banner.h: what a person should see before the first step.
#pragma once
#include <string>

#include "models/causal_lm.h"
#include "train/config.h"
#include "train/plan.h"
#include "train/prepare_data.h"

namespace danlu::train {

/// Known before weights are loaded: the device chosen, data, one decoded sample with its mask,
/// batch arithmetic.
std::string data_banner(const TrainConfig& config, const at::Device& device,
                        const arch::ModelConfig& model, const PreparedText& text,
                        const PreparedData& data, const RunPlan& plan);

/// "trainable 12,288 of 272,704 parameters (4.51 %)".
std::string parameter_line(const models::CausalLM& model);

}  // namespace danlu::train
