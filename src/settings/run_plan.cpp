#include "settings/run_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "base/message.h"

namespace danlu::settings {
namespace {

constexpr int64_t kDefaultGlobalBatch = 16;

/// What fills no micro-batch of all ranks is left out, and steps run on over the end of an epoch.
bool leaves_rest_out(const TrainConfig& config, data::LastBatch last_batch) {
  return last_batch == data::LastBatch::kWrap && config.data.runs_on && config.data.drops_last;
}

/// is_rounded_down: a step that the last epoch does not fill is not taken.
int64_t total_steps(const BatchConfig& batch, const RunPlan& plan, bool is_rounded_down) {
  if (batch.max_steps > 0) return batch.max_steps;
  if (batch.train_samples > 0)
    return std::max<int64_t>(1, batch.train_samples / plan.global_batch_size);
  const double steps = batch.epochs * plan.steps_of_an_epoch;
  const double whole = is_rounded_down ? std::floor(steps + 1e-9) : std::ceil(steps - 1e-9);
  return std::max<int64_t>(1, static_cast<int64_t>(whole));
}

/// `steps`, or fewer where max_epochs ends the run before.
int64_t at_most_epochs(const BatchConfig& batch, const RunPlan& plan, int64_t steps) {
  if (batch.max_epochs <= 0) return steps;
  const double most = static_cast<double>(batch.max_epochs) * plan.steps_of_an_epoch;
  return std::clamp<int64_t>(static_cast<int64_t>(std::ceil(most - 1e-9)), 1, steps);
}

/// Updates that warm up. transformers rounds a part of the steps up, from the product as it is
/// (0.07 of 100 are 8); Megatron keeps fractions.
double warmup_of(const ScheduleChoice& schedule, int64_t decay_steps, int64_t steps,
                 int64_t samples_of_step) {
  if (schedule.warmup_steps) return static_cast<double>(*schedule.warmup_steps);
  if (schedule.warmup_samples)
    return static_cast<double>(*schedule.warmup_samples) / static_cast<double>(samples_of_step);
  if (schedule.warmup_fraction) return *schedule.warmup_fraction * static_cast<double>(decay_steps);
  return std::ceil(schedule.warmup_ratio * static_cast<double>(steps));
}

/// Steps of so many samples, where the schedule counts these. Errors: UsageError if they are none.
std::optional<int64_t> steps_of(const TrainConfig& config, const char* flag,
                                const std::optional<int64_t>& samples, int64_t of_step) {
  if (!samples) return std::nullopt;
  if (*samples % of_step == 0) return *samples / of_step;
  throw UsageError(
      tr("[train] {} {}: no whole steps of {} samples", config.flag(flag), *samples, of_step),
      tr("take a multiple of {}", of_step));
}

/// Updates of the last phase where nothing says how many.
int64_t usual_decay(const ScheduleConfig& schedule, const ScheduleChoice& told) {
  if (!told.is_stable_for_a_third) return schedule.total_steps / 10;
  const int64_t rest =
      std::max<int64_t>(0, schedule.total_steps - static_cast<int64_t>(schedule.warmup_steps));
  return rest - rest / 3;
}

/// asked: steps of the run, before max_epochs ends it.
ScheduleConfig schedule_of(const TrainConfig& config, int64_t of_step, int64_t asked) {
  ScheduleConfig schedule = config.schedule.shape;
  const ScheduleChoice& told = config.schedule;
  schedule.total_steps = told.decay_total_steps.value_or(
      steps_of(config, "lr_decay_samples", told.decay_samples, of_step).value_or(asked));
  schedule.warmup_steps = warmup_of(told, schedule.total_steps, asked, of_step);
  if (told.scales_by_sample) schedule.inverse_scale = 1.0 / static_cast<double>(of_step);
  if (schedule.kind == ScheduleKind::kWarmupStableDecay) {
    schedule.decay_steps = told.wsd_decay_steps.value_or(
        steps_of(config, "lr_wsd_decay_samples", told.wsd_decay_samples, of_step)
            .value_or(usual_decay(schedule, told)));
  }
  return schedule;
}

/// What the copies of the model share.
std::string shared_memory(Sharding sharding) {
  switch (sharding) {
    case Sharding::kNone:
      return "";
    case Sharding::kState:
      return tr("; they share the optimizer's state (ZeRO-1)");
    case Sharding::kGradients:
      return tr("; they share the optimizer's state and gradients (ZeRO-2)");
    case Sharding::kParameters:
      return tr("; they share the optimizer's state, gradients and parameters (ZeRO-3)");
  }
  return "";
}

/// Whether what an answer is worth depends on answers to other prompts of its rollout.
bool compares_prompts(const Reinforcement& told) {
  const bool in_groups = told.scales_rewards();
  const bool by_group = told.scale == RewardScale::kGroup || told.scale == RewardScale::kNone;
  return !(in_groups && by_group);
}

}  // namespace

int64_t accumulation_of(const BatchConfig& batch) {
  const int64_t together = batch.micro_batch_size * batch.ranks;
  if (batch.global_batch_size > 0) return batch.global_batch_size / together;
  if (batch.accumulation > 0) return batch.accumulation;
  return (kDefaultGlobalBatch + together - 1) / together;
}

int64_t samples_of_step(const BatchConfig& batch) {
  return batch.micro_batch_size * accumulation_of(batch) * batch.ranks;
}

int64_t steps_of_rollout(const TrainConfig& config) {
  const Reinforcement& told = config.objective.policy;
  const int64_t of_step = samples_of_step(config.batch);
  const bool counts_passes = told.micro_batches_together > 0;
  const int64_t together = counts_passes ? told.micro_batches_together *
                                               config.batch.micro_batch_size * config.batch.ranks
                                         : told.answers_together;
  if (together == 0) return told.steps;
  const char* flag = counts_passes ? "steps_per_generation" : "generation_batch_size";
  const int64_t value = counts_passes ? told.micro_batches_together : told.answers_together;
  if (together % of_step == 0) return together / of_step;
  if (of_step % together == 0) {
    if (compares_prompts(told)) {
      log::notice(
          "{}: the {} answers of a step are drawn together, and what they are worth is normalised "
          "over all of them, not over {} at a time",
          config.said(flag, value), of_step, together);
    }
    return 1;
  }
  throw UsageError(
      tr("[train] {}: the {} answers that are drawn at one time are no whole steps of {}",
         config.said(flag, value), together, of_step),
      counts_passes
          ? tr("it counts micro-batches, of which a step has {}: take a multiple or a divisor",
               accumulation_of(config.batch))
          : tr("take a multiple of {}, or a divisor", of_step));
}

void require_whole_groups(const TrainConfig& config) {
  const Reinforcement& told = config.objective.policy;
  if (!config.objective.draws()) return;
  const int64_t answers = told.steps * samples_of_step(config.batch);
  if (answers % told.answers == 0) return;
  throw UsageError(tr("[train] {}: the {} answers of a rollout ({} × {}) are no whole groups of so "
                      "many to a prompt",
                      config.said("num_generations", told.answers), answers, told.steps,
                      samples_of_step(config.batch)),
                   tr("choose --num_generations and the batch so that they are"));
}

RunPlan plan_run(const TrainConfig& config, int64_t num_samples, data::LastBatch last_batch) {
  RunPlan plan;
  plan.micro_batch_size = config.batch.micro_batch_size;
  plan.accumulation = accumulation_of(config.batch);
  plan.global_batch_size = samples_of_step(config.batch);
  plan.num_samples = num_samples;
  const int64_t together = config.batch.micro_batch_size * config.batch.ranks;
  const bool leaves_rest = leaves_rest_out(config, last_batch);
  const int64_t used = data::samples_of_epoch(num_samples, together,
                                              leaves_rest ? data::LastBatch::kDrop : last_batch);
  plan.steps_per_epoch = data::steps_per_epoch(used, plan.global_batch_size, last_batch);
  plan.steps_of_an_epoch =
      last_batch == data::LastBatch::kWrap
          ? static_cast<double>(used) / static_cast<double>(plan.global_batch_size)
          : static_cast<double>(plan.steps_per_epoch);
  const int64_t asked = total_steps(config.batch, plan, leaves_rest);
  plan.total_steps = at_most_epochs(config.batch, plan, asked);
  plan.batch_arithmetic =
      tr("{} × {} accumulation × {} = {} samples a step",
         plan.micro_batch_size == 1 ? tr("1 sample") : tr("{} samples", plan.micro_batch_size),
         plan.accumulation,
         config.batch.ranks == 1 ? tr("1 process") : tr("{} processes", config.batch.ranks),
         plan.global_batch_size);
  if (config.mesh.tensor > 1) {
    plan.batch_arithmetic +=
        tr("; every model is divided over {} tensor-parallel processes{}", config.mesh.tensor,
           config.mesh.sequence_parallel ? tr(", and its tokens") : "");
  }
  if (const ContextShape& context = config.mesh.context; !context.is_alone()) {
    plan.batch_arithmetic +=
        tr("; {} context-parallel processes share the tokens of every micro-batch", context.size());
    if (context.ring > 1 && context.ulysses > 1) {
      plan.batch_arithmetic += tr(" ({} rings of {}, heads exchanged among {})", context.ulysses,
                                  context.ring, context.ulysses);
    } else {
      plan.batch_arithmetic += context.ring > 1 ? tr(" (a ring)") : tr(" (heads exchanged)");
    }
  }
  if (config.mesh.pipeline > 1) {
    plan.batch_arithmetic += tr("; its layers stand in {} pipeline stages", config.mesh.pipeline);
    if (config.chunks > 1)
      plan.batch_arithmetic +=
          tr("; {} runs of layers in each, which go interleaved", config.chunks);
    if (config.order == arch::PipelineOrder::kZeroBubble)
      plan.batch_arithmetic += tr("; with the zero-bubble schedule");
  }
  plan.batch_arithmetic += shared_memory(config.keeping.sharding);

  plan.schedule = schedule_of(config, plan.global_batch_size, asked);
  plan.schedule.validate();
  return plan;
}

}  // namespace danlu::settings
