// models/device_parts.h: whether a device can do what a model is made of.
#pragma once
#include <c10/core/Device.h>

#include "arch/model_config.h"
#include "settings/router_training.h"

namespace danlu::models {

/// Errors: DeviceError naming the first part of such a model that the device cannot do
/// (ops::Backend::lacks).
void require_parts(const arch::ModelConfig& config, const c10::Device& device);

/// Errors: DeviceError where training asks something of routers that the device cannot do.
void require_routers(const settings::RouterTraining& routers, const c10::Device& device);

}  // namespace danlu::models
