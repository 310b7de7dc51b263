#include "train/start/settle.h"

#include "base/error.h"
#include "base/file.h"
#include "base/rank_place.h"
#include "parallel/ranks.h"
#include "train/choose_device.h"
#include "train/run_dir/resume.h"
#include "train/run_dir/run_dir.h"

namespace danlu::train {
namespace {

fs::path directory_of_run(const TrainConfig& config) {
  if (!config.output.versioned) return config.output.directory;
  const auto own = run_of_job(config.output, restart_from_environment());
  return own ? *own : choose_version(config);
}

Settled settle_here(const TrainConfig& told) {
  told.validate();
  Settled settled{told};
  TrainConfig& config = settled.config;
  config.output.directory = directory_of_run(config);
  const OwnRun own = find_own_run(config);
  settled.is_done = own == OwnRun::kModelAlone;
  if (own != OwnRun::kNone && !settled.is_done) config.output.resume = "auto";
  settled.device = select_device(config);
  config.activation_offload = activation_offload_on(settled.device, config);
  return settled;
}

}  // namespace

Settled settle(const TrainConfig& told) {
  try {
    return settle_here(told);
  } catch (...) {
    tell_ranks(told.place, current_error());
    throw;
  }
}

}  // namespace danlu::train
