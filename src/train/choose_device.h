// train/choose_device.h: the device that a run computes on, and what of the flags has no meaning
// there.
#pragma once
#include <ATen/core/TensorBody.h>

#include "settings/config.h"

namespace danlu::train {

/// The device that --device means for this rank. Errors: UsageError if files are to hold what the
/// device trains and it is no CPU; those of device::select.
at::Device select_device(const settings::TrainConfig& config);

/// The offload of activations that `config` asks for. On a CPU what leaves for host memory would
/// stay where it is: then there is none, with a warning.
settings::ActivationOffload activation_offload_on(const at::Device& device,
                                                  const settings::TrainConfig& config);

}  // namespace danlu::train
