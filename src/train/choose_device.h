// train/choose_device.h: the device that a run computes on, and what of the flags has no meaning
// there.
#pragma once
#include <ATen/core/TensorBody.h>

#include "settings/config.h"

namespace danlu::train {

/// Of --device, for this rank. Errors: UsageError if files are to hold what the device trains and
/// it is no CPU; those of device::select.
at::Device select_device(const settings::TrainConfig& config);

/// On a CPU what leaves for host memory would stay where it is: the flag goes, with a warning.
void settle_activation_offload(const at::Device& device, settings::TrainConfig& config);

}  // namespace danlu::train
