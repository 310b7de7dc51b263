// train/throughput.h: model FLOP utilisation: work a token needs against what the device can do.
#pragma once
#include <c10/core/Device.h>

#include "arch/model_config.h"
#include "train/config.h"

namespace danlu::train {

/// Floating-point operations of forward and backward per real token: 6 per weight of a matrix
/// product (4 where base weights are frozen under adapters), and causal attention at `mean_length`.
double flops_per_token(const arch::ModelConfig& model, const TrainConfig& config,
                       double mean_length);

/// Operations per second: --device_tflops, else the best of a few large matrix products in the
/// run's own type on the run's own device.
double peak_flops(const TrainConfig& config, const at::Device& device);

}  // namespace danlu::train
