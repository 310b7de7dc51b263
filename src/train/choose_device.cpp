#include "train/choose_device.h"

#include "base/error.h"
#include "base/log.h"
#include "device/select.h"

namespace danlu::train {

at::Device select_device(const settings::TrainConfig& config) {
  const at::Device device = device::select(config.device, config.place.local_rank);
  const bool in_files = !(config.keeping.state_in.empty() && config.keeping.parameters_in.empty());
  if (in_files && !device.is_cpu()) {
    throw UsageError(tr("[train] {}: files can hold what a CPU trains, not {}",
                        config.flag("offload_dir"), device::name_of(device)),
                     tr("leave --offload_dir out"));
  }
  return device;
}

settings::ActivationOffload activation_offload_on(const at::Device& device,
                                                  const settings::TrainConfig& config) {
  settings::ActivationOffload offload = config.activation_offload;
  if (!device.is_cpu() || offload.to != settings::OffloadTo::kHost) return offload;
  const char* const asked =
      config.given_as.count("swap_attention") ? "swap_attention" : "activation_offload";
  log::warning(
      "{}: a CPU has its activations in host memory, so nothing moves; "
      "--activation_offload file --offload_dir DIR has a file hold them",
      config.flag(asked));
  offload.to = settings::OffloadTo::kNone;
  return offload;
}

}  // namespace danlu::train
