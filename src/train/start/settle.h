// train/start/settle.h: what a process settles by itself before the ranks meet.
#pragma once
#include <c10/core/Device.h>

#include "train/settings.h"

namespace danlu::train {

struct Settled {
  TrainConfig config;  ///< as told, with the run's directory and what the device can follow
  at::Device device = at::kCPU;
  bool is_done = false;  ///< the directory holds what this very line left at its end
};

/// Chooses the run's directory and this rank's device. Errors: as TrainConfig::validate and
/// select_device, of which the other ranks are told.
Settled settle(const TrainConfig& told);

}  // namespace danlu::train
