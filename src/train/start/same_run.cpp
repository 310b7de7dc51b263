#include "train/start/same_run.h"

#include <fmt/format.h>

#include "base/descriptor.h"
#include "base/log.h"
#include "settings/identity.h"
#include "train/run_dir/resume.h"

namespace danlu::train {
namespace {

/// Errors: UsageError where a rank would train something else.
void require_same_run(const Ranks& ranks, const Inputs& inputs, const at::Device& device,
                      const Json& identity, const EarlierRun& earlier) {
  const auto& checkpoint = earlier.checkpoint;
  ranks.require_same("version", DANLU_VERSION);
  ranks.require_same("checkpoint", checkpoint ? checkpoint->directory.string() : "-");
  ranks.require_same("device", at::DeviceTypeName(device.type(), /*lower_case=*/true));
  ranks.require_same("precision", precision_name(inputs.config.precision));
  ranks.require_same("data set", fmt::format("{:016x}", inputs.data.content_hash), host_name());
  for (const auto& [key, value] : identity.items()) ranks.require_same(key, dump_text(value));
}

}  // namespace

PlannedSteps plan_same_run(const Inputs& inputs, const weights::CheckpointSource& source,
                           const at::Device& device, const Ranks& ranks,
                           const EarlierRun& earlier) {
  const TrainConfig& config = inputs.config;
  const PreparedData& data = inputs.data;
  // Where the model draws answers, every prompt gives several samples.
  const bool draws = config.objective.kind == settings::ObjectiveKind::kPolicy;
  const settings::Reinforcement& told = config.objective.policy;
  const int64_t of_each = draws ? told.answers * told.iterations : 1;
  PlannedSteps steps{plan_run(config, data.train->size() * of_each, data.last_batch), {}};
  const int64_t together = config.batch.micro_batch_size * config.batch.ranks;
  const int64_t left_out = data.train->size() % together;
  if (config.data.drops_last && config.data.runs_on && left_out > 0) {
    log::info(
        "of each epoch {} samples are left out, as in {}, which do not fill a micro-batch of all "
        "processes ({}); steps go on into the next epoch",
        left_out, config.profile.name, together);
  } else if (data.last_batch == data::LastBatch::kDrop && left_out > 0) {
    log::info(
        "{} true: of each epoch {} samples are left out, which do not fill a micro-batch of all "
        "processes ({})",
        config.flag("dataloader_drop_last"), left_out, together);
  }
  steps.identity = settings::run_identity(config, source, steps.plan);
  require_same_run(ranks, inputs, device, steps.identity, earlier);
  if (earlier.checkpoint)
    check_resumable(*earlier.checkpoint, config, steps.identity, data.content_hash);
  return steps;
}

}  // namespace danlu::train
