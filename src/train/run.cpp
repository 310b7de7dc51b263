#include "train/run.h"

#include <fmt/format.h>

#include "base/file.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "device/counted_memory.h"
#include "models/device_parts.h"
#include "models/weight_files.h"
#include "settings/run_plan.h"
#include "train/finish.h"
#include "train/loop.h"
#include "train/report/planned_memory.h"
#include "train/rollouts/reward_settings.h"
#include "train/run_dir/cached_samples.h"
#include "train/run_dir/held_directory.h"
#include "train/run_dir/run_dir.h"
#include "train/start/announce.h"
#include "train/start/begin.h"
#include "train/start/begin_critic.h"
#include "train/start/begin_rollouts.h"
#include "train/start/meet.h"
#include "train/start/precompute.h"
#include "train/start/prepared.h"
#include "train/start/settle.h"
#include "train/start/teacher.h"
#include "train/throughput.h"

namespace danlu::train {
namespace {

/// Pixels are made where a pass begins.
std::shared_ptr<data::MediaLoader> loader_for(const models::CausalLM& model,
                                              const PreparedData& data) {
  return model.stage().has(model.stage().chain.patches()) ? data.media : nullptr;
}

data::BatchStreamOptions stream_options(const Prepared& run, const models::CausalLM& model) {
  const TrainConfig& config = run.config;
  const RunPlan& plan = run.steps.plan;
  data::BatchStreamOptions options;
  options.micro_batch_size = plan.micro_batch_size;
  options.accumulation_steps = plan.accumulation;
  options.dp_rank = config.mesh.data_rank(config.place.rank);
  options.dp_size = config.mesh.data;
  options.last_batch = run.data.last_batch;
  options.max_tokens_per_micro_batch =
      config.shares_passes() ? config.longest_sample() * plan.micro_batch_size : 0;
  options.vocab_size = run.source.config.vocab_size;
  options.media_loader = loader_for(model, run.data);
  // Rows of text alone are dealt as to a model of text, to the bit.
  // A mean of its own is that of samples which follow one another, whoever else trains.
  options.balances_ranks = run.data.most_patches > 0 && !config.objective.averages_micro_batches;
  return options;
}

/// A stream of the model's own answers, or of data from disk.
Steps steps_of(const Prepared& run, Begun& begun, Critic* critic) {
  const data::BatchStreamOptions options = stream_options(run, *begun.state.model);
  const settings::ObjectiveConfig& objective = run.config.objective;
  if (!objective.is_rewarded() && objective.draws())
    return {distillation_stream_of(run, begun, options), {}};
  if (!objective.is_rewarded()) {
    return {std::make_unique<data::BatchStream>(run.data.train, run.data.order, options,
                                                begun.consumed_samples),
            {}};
  }
  std::unique_ptr<RolloutStream> drawn = rollout_stream_of(run, begun, critic, options);
  const auto evaluate = [&run, stream = drawn.get()](const EvaluationSettings& settings) {
    return stream->evaluate(*run.data.validation, settings);
  };
  return {std::move(drawn), evaluate};
}

WorkOfTokens work_of(const Prepared& run, const models::CausalLM& model) {
  return {flops_per_token(model, run.data.lengths), flops_per_visual_token(model),
          peak_flops(run.config, run.device) * static_cast<double>(run.ranks.size())};
}

/// Refuses a disk that is too full for the first checkpoint, before hours are spent on what it is
/// to hold. Collective.
void require_space_to_save(const TrainConfig& config, const models::CausalLM& model,
                           const checkpoint::Saver& saver, const Shared& run_dir) {
  if (config.output.save == Interval::kNo) return;
  const bool adapter = config.tuner == Tuner::kLora;
  checkpoint::SaveRequest request;
  request.run_dir = config.output.directory;
  request.keeper = run_dir.keeper;
  request.model_bytes = model_file_bytes(model, adapter);
  request.with_state = !config.output.save_only_model;
  request.exact_weights = adapter;
  saver.require_room(request, tr("a checkpoint"));
}

/// The same for the finished model. Collective.
void require_space_to_finish(const TrainConfig& config, const models::CausalLM& model,
                             const Ranks& ranks) {
  const uint64_t bytes = model_file_bytes(model, config.tuner == Tuner::kLora);
  if (!ranks.is_first()) return;
  require_free_space(config.output.directory, bytes, "the finished model");
}

/// Removes what the run overwrites and describes the run in its place.
void take_directory(const Prepared& run, HeldDirectory& held) {
  const TrainConfig& config = run.config;
  if (held.is_kept_by(run.ranks.rank()) && config.output.overwrite && !run.earlier.is_own)
    clear_run_directory(config.output.directory);
  if (!run.ranks.is_first()) return;
  describe_run(config, run.text, run.data);
  held.remember(config.output.directory);
}

/// The observer keeps references to all that it is given.
std::unique_ptr<RunObserver> observe(const Prepared& run, int64_t start_step, HeldDirectory& held,
                                     const LogFile& log_file) {
  const auto make_again = [&] {
    const TrainConfig& config = run.config;
    if (run.ranks.is_first()) {
      held.make_again(config);
      describe_run(config, run.text, run.data);
      held.remember(config.output.directory);
    } else if (held.is_kept_by(run.ranks.rank()) && !fs::exists(config.output.directory)) {
      held.make_again(config);
    }
    log_file.begin_again();
  };
  const DirectoryHold hold{[&held] { return held.is_ours(); }, make_again};
  if (!run.ranks.is_first()) return make_silent_observer(hold);
  const RunDescription description{run.data.train->size(),
                                   fmt::format("{:016x}", run.data.content_hash),
                                   run.config.model.from_scratch};
  return make_observer(run.config, run.steps.plan, start_step, description, hold);
}

/// The same run on samples that know more.
Prepared with_data(const Prepared& run, const PreparedData& data) {
  return {run.config, run.device,  run.ranks,  run.source, run.text,     data,
          run.steps,  run.earlier, run.origin, run.memory, run.objective};
}

/// From the first weight that is read to the last file that is written.
void train(const Prepared& prepared, HeldDirectory& held, const LogFile& log_file) {
  const TrainConfig& config = prepared.config;
  CountedMemory counted(prepared.device);
  Begun begun = begin_training(prepared);
  if (is_complete(config, prepared.steps.plan, begun.state, begun.progress, prepared.ranks)) return;
  const PreparedData data = precompute_reference(prepared, begun);
  const Prepared run = with_data(prepared, data);
  const std::unique_ptr<Critic> critic = begin_critic(run);
  require_space_to_finish(config, *begun.state.model, run.ranks);
  watch_interrupts();
  take_directory(run, held);
  const Steps steps = steps_of(run, begun, critic.get());
  const auto observer = observe(run, begun.state.step, held, log_file);
  checkpoint::Saver saver(run.ranks.mesh(), *begun.state.optimizer);
  require_space_to_save(config, *begun.state.model, saver, held.shared());
  MegatronCopies megatron_copies(config);
  Run job{config,          run.steps.plan, run.steps.identity, run.data,  begun.state,
          begun.progress,  *steps.stream,  *observer,          run.ranks, saver,
          megatron_copies, held.shared(),  run.memory,         counted};
  job.critic = critic.get();
  job.evaluates_rewards = steps.evaluates_rewards;
  job.evaluation_is_due = begun.evaluation_is_due;
  job.work = work_of(run, *begun.state.model);
  if (run.earlier.is_own) {
    job.last_saved_step = begun.state.step;
    make_good(job, *run.earlier.checkpoint);
  }
  device::release_host_memory();  // what loading alone needed
  run_loop(job);
  finish(job);
}

/// Settings come back from every step that completes them, so that each step sees what is known
/// by then.
void run_connected(const TrainConfig& agreed, const at::Device& device, const Ranks& ranks,
                   const std::shared_ptr<const Objective>& objective) {
  require_no_cached_samples(agreed);
  OpenedModel model = open_checked(agreed);
  models::require_parts(model.source.config, device);
  models::require_routers(agreed.routers, device);
  require_comparing(agreed, device);
  HeldDirectory held(model.config, ranks);
  const EarlierRun earlier = find_earlier_run(model.config, ranks, held.shared());
  go_on_as_begun(earlier, model.config);
  const Inputs inputs = prepare_inputs(model, ranks);
  const auto& [completed, text, data] = inputs;
  if (!completed.data.write_to.empty()) return write_cached_samples(completed, data);
  name_padding(text, model.source.config);
  const PlannedSteps steps = plan_same_run(inputs, model.source, device, ranks, earlier);
  const LogFile log_file(completed);
  if (device.is_cpu()) ranks.compare_threads();
  const Origin origin = origin_of(completed, model.source, steps.identity, earlier);
  Announced announced = announce(
      {completed, device, model.source.config, origin.described, text, data, steps.plan}, ranks);
  announced.config.output.count_shares(steps.plan.total_steps);
  if (announced.config.dry_run) return;
  train({announced.config, device, ranks, model.source, text, data, steps, earlier, origin,
         announced.request, objective},
        held, log_file);
}

}  // namespace

fs::path run(const TrainConfig& told, const std::shared_ptr<const Objective>& objective) {
  settings::require_whole_groups(told);
  require_rewards(told.objective.policy);
  const Settled settled = settle(told);
  if (told.dry_run && told.place.rank > 0) return {};  // rank 0 says it all, and needs nobody
  const Ranks ranks = connect(settled.config);
  const TrainConfig agreed = agree(settled.config, ranks);
  if (ranks.from_first(settled.is_done ? "done" : "").empty())
    ranks.do_or_give_up([&] { run_connected(agreed, settled.device, ranks, objective); });
  return told.dry_run ? fs::path() : agreed.output.directory;
}

}  // namespace danlu::train
