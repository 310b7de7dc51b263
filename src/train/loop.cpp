#include "train/loop.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/clock.h"
#include "base/descriptor.h"
#include "base/error.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "base/slow_watch.h"
#include "checkpoint/checkpoint.h"
#include "models/training_memory.h"
#include "parallel/agree.h"
#include "train/evaluate.h"
#include "train/report/used_memory.h"
#include "train/rollouts/rollout_stream.h"
#include "train/run_dir/save.h"

namespace danlu::train {
namespace {

/// The largest of all ranks. Collective.
void add_memory(const Run& run, StepRecord& record) {
  const UsedMemory own = used_memory(run.state.model->device());
  const auto largest = [&](uint64_t bytes) {
    return static_cast<uint64_t>(run.ranks.largest(static_cast<int64_t>(bytes)));
  };
  record.memory_bytes = largest(own.bytes);
  record.host_memory_bytes = largest(own.host_bytes);
}

/// Collective.
StepRecord record_of(const Run& run, const StepResult& last, double elapsed_s, int64_t steps_here) {
  const LogWindow& window = run.progress.window;
  StepRecord record;
  record.step = run.state.step;
  record.total_steps = run.plan.total_steps;
  record.epoch = run.stream.epoch();
  record.loss = window.counted > 0 ? window.loss / static_cast<double>(window.counted) : last.loss;
  for (const auto& [name, metric] : window.metrics)
    record.metrics[name] = metric.sum / static_cast<double>(metric.steps);
  record.grad_norm = last.grad_norm;
  record.lr = last.lr;
  record.loss_scale = last.loss_scale;
  record.elapsed_s = elapsed_s;
  record.step_s = window.seconds / static_cast<double>(std::max<int64_t>(1, window.steps));
  record.remaining_s = elapsed_s / static_cast<double>(steps_here) *
                       static_cast<double>(run.plan.total_steps - run.state.step);
  record.tokens_per_s =
      window.seconds > 0 ? static_cast<double>(window.tokens) / window.seconds : 0;
  record.visual_tokens_per_s =
      window.seconds > 0 ? static_cast<double>(window.visual_tokens) / window.seconds : 0;
  record.samples_per_s =
      window.seconds > 0 ? static_cast<double>(window.samples) / window.seconds : 0;
  if (run.work.peak_flops > 0) {
    record.mfu = (record.tokens_per_s * run.work.flops_per_token +
                  record.visual_tokens_per_s * run.work.flops_per_visual_token) /
                 run.work.peak_flops;
  }
  record.data_wait = window.seconds > 0 ? window.wait_s / window.seconds : 0;
  for (const auto& [name, seconds] : window.times)
    record.times[name] = seconds / static_cast<double>(std::max<int64_t>(1, window.steps));
  add_memory(run, record);
  record.skipped_steps = run.state.skipped_steps;
  return record;
}

void report_bad_step(const Run& run, const StepResult& result) {
  const std::string where = result.bad_parameters.empty()
                                ? ""
                                : tr(" (first in {})", fmt::join(result.bad_parameters, ", "));
  const bool overflowed = run.state.loss_scaler.dynamic() && std::isfinite(result.loss);
  if (overflowed) {
    log::info("step {}: overflow at loss scale {:g}, skipped; the scale is now {:g}",
              run.state.step, result.loss_scale, run.state.loss_scaler.scale());
  } else {
    log::warning("step {}: loss {} or gradient norm {} is not finite{}: step skipped",
                 run.state.step, std::fabs(result.loss), std::fabs(result.grad_norm), where);
  }
  // While overflows still lower the loss scale, 32 bad steps more are allowed than --max_bad_steps.
  const bool falls = overflowed && run.state.loss_scaler.scale() > run.config.loss_scale.min_scale;
  const int64_t limit = run.config.max_bad_steps + (falls ? 32 : 0);
  if (run.state.bad_steps_in_row < limit) return;
  throw_diverged(run.state.step,
                 tr("{} steps in a row were not finite{}", run.state.bad_steps_in_row, where));
}

/// Whether checkpoints come without an evaluation that asks for one.
bool saves_by_itself(const OutputConfig& output) {
  return output.save != Interval::kNo && output.save != Interval::kBest;
}

bool due(const Run& run, Interval interval, int64_t every, bool epoch_ended) {
  if (interval != Interval::kSteps && interval != Interval::kEpoch) return false;
  return interval == Interval::kSteps ? run.state.step % every == 0 : epoch_ended;
}

WorkDone work_done(const models::LayerPasses& passes) {
  // A backward pass is two products for each of a forward pass.
  return {passes.forward + passes.backward,
          static_cast<double>(passes.forward) + 2 * static_cast<double>(passes.backward)};
}

/// The layers of this rank's stage.
int64_t num_layers_of(const Run& run) {
  return static_cast<int64_t>(run.state.model->stage().layers().size());
}

void watch_step(const Run& run, const data::StepBatches& batches, SlowWatch& watch) {
  const int64_t passes =
      num_layers_of(run) * std::count_if(batches.micro_batches.begin(), batches.micro_batches.end(),
                                         [&](const data::Batch& batch) {
                                           return run.state.objective->weight(batch) > 0;
                                         });
  watch.begin(fmt::format("step {} of {}", run.state.step + 1, run.plan.total_steps), "a step",
              work_done({.forward = passes, .backward = passes}));
}

/// Batches of `batch_size` that an evaluation has at most; 0: all.
int64_t eval_batches(const Run& run, int64_t batch_size) {
  const OutputConfig& output = run.config.output;
  if (!output.eval_counts_steps) return output.eval_batches;
  const int64_t samples = output.eval_batches * run.plan.global_batch_size;
  return (samples + batch_size - 1) / batch_size;
}

/// What is least for the best weights. Errors: UsageError where evaluations have no such figure.
double score_of(const Run& run, const Evaluation& evaluation) {
  const std::string& name = run.progress.best_metric;
  if (name.empty()) return evaluation.loss;
  const auto found = evaluation.metrics.find(name);
  if (found != evaluation.metrics.end())
    return run.progress.best_is_greatest ? -found->second : found->second;
  std::vector<std::string> known = {"loss"};
  for (const auto& [metric, value] : evaluation.metrics) known.push_back(metric);
  throw UsageError(tr("[train] {} {}: evaluations have no such figure; there is: {}",
                      run.config.flag("metric_for_best_model"), name, fmt::join(known, ", ")));
}

/// Evaluates, and counts it for an early stop. Returns what is least for the best weights.
double evaluate_now(Run& run, SlowWatch& watch) {
  EvaluationSettings settings;
  settings.batch_size = run.config.batch.eval_batch_size > 0 ? run.config.batch.eval_batch_size
                                                             : run.config.batch.micro_batch_size;
  settings.max_tokens =
      run.config.shares_passes() ? run.config.longest_sample() * settings.batch_size : 0;
  settings.max_batches = eval_batches(run, settings.batch_size);
  settings.media = run.data.media;
  settings.on_start = [&](int64_t num_batches) {
    watch.begin(tr("evaluation after step {}", run.state.step), "an evaluation",
                work_done({.forward = num_batches * num_layers_of(run)}));
  };
  Evaluation evaluation;
  if (run.evaluates_rewards) {
    evaluation = run.evaluates_rewards(settings);
  } else {
    evaluation = evaluate(*run.state.model, *run.state.objective, run.data.validation, settings);
    watch.end();
  }
  if (!evaluation.is_of_rewards && !std::isfinite(evaluation.loss)) {
    throw_diverged(run.state.step,
                   tr("the loss over the held-out data is {}", std::fabs(evaluation.loss)));
  }
  run.observer.look_after_directory(run.progress.log_history, /*needed=*/false);
  run.progress.log_history.push_back(run.observer.on_evaluation(
      evaluation, run.state.step, run.plan.total_steps, run.stream.epoch()));
  const double score = score_of(run, evaluation);
  const bool is_lowest = score < run.progress.lowest_loss;
  if (is_lowest) run.progress.lowest_loss = score;
  if (!run.config.output.stops_at_saves)
    run.progress.evaluations_since_best = is_lowest ? 0 : run.progress.evaluations_since_best + 1;
  return score;
}

/// Notes this step as the best if its `score` is, and a checkpoint will be there to find it by.
/// is_asked: it is saved anyway. Returns whether it must be saved beside what is asked for.
bool note_best(Run& run, double score, bool is_asked) {
  const OutputConfig& output = run.config.output;
  RunProgress& progress = run.progress;
  const bool saves_nothing = output.save == Interval::kNo;
  const bool is_there = run.last_saved_step == run.state.step;  // a signal's
  const bool may_be = is_asked || is_there || output.saves_best || saves_nothing;
  if (!may_be || !(score < progress.best_loss)) return false;
  progress.best_loss = score;
  progress.best_step = run.state.step;
  if (is_asked || saves_nothing) return false;
  if (output.saves_best && output.save != Interval::kBest)
    progress.saved_as_best.push_back(run.state.step);
  return true;
}

void evaluate_and_save(Run& run, SlowWatch& watch, bool last_step, bool epoch_ended) {
  const OutputConfig& output = run.config.output;
  const int64_t eval_steps = output.eval_steps > 0 ? output.eval_steps : output.save_steps;
  std::optional<double> loss;
  if (run.data.validation && output.evaluate != Interval::kNo) {
    run.evaluation_is_due |= last_step || due(run, output.evaluate, eval_steps, epoch_ended);
    if (run.evaluation_is_due && (run.stream.is_resumable() || last_step)) {
      loss = evaluate_now(run, watch);
      run.evaluation_is_due = false;
    }
  } else {
    run.evaluation_is_due = false;  // the run that put it off evaluated, this one does not
  }
  run.save_is_due |= due(run, output.save, output.save_steps, epoch_ended);
  bool saves =
      (run.save_is_due && run.stream.is_resumable()) || (last_step && saves_by_itself(output));
  if (saves && output.stops_at_saves) run.progress.count_checkpoint();
  const bool ends = run.progress.stops_early(output.early_stop);
  if (loss) saves |= note_best(run, *loss, saves || ends);
  if (saves) {
    begin_checkpoint(run);
    run.save_is_due = false;
  }
}

/// The loss of this rank's first batch that weighs anything; a rank without one gives 0, and takes
/// part in the passes of the others.
double loss_after_update(Run& run, const data::StepBatches& batches) {
  const Objective& objective = *run.state.objective;
  const auto batch = std::find_if(batches.micro_batches.begin(), batches.micro_batches.end(),
                                  [&](const data::Batch& b) { return objective.weight(b) > 0; });
  const bool has_one = batch != batches.micro_batches.end();
  return loss_of(*run.state.model, objective, has_one ? &*batch : nullptr);
}

/// Checks the weights and a loss after the last update, which no later step would do: finite
/// weights may give a loss that is not.
void check_last_update(Run& run, const data::StepBatches& batches, bool skipped) {
  require_finite_everywhere(run);
  if (skipped) return;  // nothing was updated, and these batches are known to be bad
  const double loss = loss_after_update(run, batches);
  parallel::together(run.ranks.all(), [&] {
    if (!std::isfinite(loss))
      throw_diverged(run.state.step, tr("the loss after the last update is {}", std::fabs(loss)));
  });
}

/// Throws if no step has changed the model, because the model that was opened would be saved.
void refuse_untrained(const Run& run) {
  if (run.progress.loss_steps > 0) return;
  throw NumericError(
      tr("[train] all {} steps were skipped, because no loss or no gradient norm was "
         "finite: nothing was learned and no model is written",
         run.state.skipped_steps),
      tr("lower --lr, or use --dtype bf16 or fp32"));
}

std::string how_to_go_on(const Run& run) {
  const OutputConfig& output = run.config.output;
  if (output.save_only_model) {
    return tr("it holds the model only (--save_only_model): training goes on from it as a new run");
  }
  const bool goes_on = output.resume == "auto" || (output.begins_anew && !output.versioned);
  if (goes_on && !output.overwrite) return tr("run the same command again to continue");
  return tr(
      "run the same command with --resume auto and without --overwrite_output_dir to continue");
}

/// Prepares the message of a second signal, which may come while the first signal's checkpoint is
/// written.
void prepare_second_signal_message(const Run& run, bool is_saved) {
  const std::vector<checkpoint::Found> found = checkpoint::list(run.config.output.directory);
  const std::string newest = found.empty() ? "" : found.back().directory.filename().string();
  set_last_words(
      is_saved         ? tr("[train] ended at once by a second signal after step {}; checkpoint-{} "
                                    "is complete",
                            run.state.step, run.state.step)
      : newest.empty() ? tr("[train] ended at once by a second signal, before checkpoint-{} was "
                            "known to be complete; no other one is there",
                            run.state.step)
                       : tr("[train] ended at once by a second signal, before checkpoint-{} was "
                            "known to be complete; the newest that is: {}",
                            run.state.step, newest),
      log::file_descriptor());
}

/// The message of a run that `signal` stopped; every rank calls this. own: the signal that this
/// rank itself got; 0: none.
std::string stop_message(const Run& run, int signal, int own) {
  const Ranks& ranks = run.ranks;
  const int64_t step = run.state.step;
  const int64_t first =
      ranks.size() - ranks.largest(own == signal ? ranks.size() - ranks.rank() : 0);
  const std::string host = ranks.from(first, host_name());
  const bool is_here =
      ranks.from(first, std::to_string(ranks.lead())) == std::to_string(ranks.lead());
  if (own != 0 || is_here) {
    return tr("[train] stopped by {} after step {}; checkpoint-{} is complete",
              interrupt_name(signal), step, step);
  }
  return tr(
      "[train] stopped by {}, sent to rank {} on {}, after step {}; checkpoint-{} is complete",
      interrupt_name(signal), first, host, step, step);
}

void stop_on_signal(Run& run) {
  const int own = pending_interrupt();
  const auto signal = static_cast<int>(run.ranks.largest(own));
  if (signal == 0) return;
  if (run.state.step == 0) {
    run.ranks.wait_for_all();
    throw_interrupted(
        signal,
        tr("[train] stopped by {} in step 1: no step was finished and nothing is saved",
           interrupt_name(signal)),
        tr("the same command begins again"));
  }
  go_on_saving(run, /*waits=*/true);
  prepare_second_signal_message(run, run.last_saved_step == run.state.step);
  // If the run's directory is removed meanwhile, the checkpoint is lost with it: try once more.
  for (int tries = 0; tries < 2 && run.last_saved_step != run.state.step; ++tries) {
    begin_checkpoint(run);
    go_on_saving(run, /*waits=*/true);
  }
  if (run.last_saved_step != run.state.step) {
    throw IoError(
        tr("[train] stopped by {} after step {}, which could not be saved: the run's "
           "directory was removed again and again",
           interrupt_name(signal), run.state.step));
  }
  prepare_second_signal_message(run, /*is_saved=*/true);
  const std::string message = stop_message(run, signal, own);
  run.ranks.wait_for_all();  // a rank that ends now would end those that still write
  if (run.ranks.is_first()) run.megatron_copies.wait();
  run.ranks.wait_for(0);  // not in an exchange: copies may take longer than its timeout
  const std::string hint = how_to_go_on(run);
  throw_interrupted(signal, message, hint);
}

/// Between two tries of a step: stops if a signal came, and gives the step's batches back so that
/// the next run takes it whole. In the midst of a rollout it takes them again and goes on.
void stop_in_search(Run& run, const data::StepBatches& batches) {
  if (run.ranks.largest(pending_interrupt()) == 0) return;
  run.stream.put_back(batches);
  if (run.stream.is_resumable()) stop_on_signal(run);
  run.stream.next();
}

/// The next step's batches. Where answers are drawn for them, a signal need not wait for these.
data::StepBatches next_batches(Run& run) {
  try {
    return run.stream.next();
  } catch (const RolloutStopped&) {
    stop_on_signal(run);
    throw InternalError("[train] a rollout was stopped without a signal");
  }
}

/// Errors: NumericError, as of a run that has diverged.
void check_kl(const Run& run, const StepResult& result) {
  const double limit = run.config.objective.policy.max_kl;
  // The second is of runs that have it in their rewards (PPO).
  auto kl = result.metrics.find("kl");
  if (kl == result.metrics.end()) kl = result.metrics.find("objective/kl");
  if (limit == 0 || kl == result.metrics.end() || kl->second <= limit) return;
  throw NumericError(
      tr("[train] step {}: the policy is {:.4g} away from its reference (KL), and --max_kl allows "
         "{:g}",
         run.state.step, kl->second, limit),
      tr("lower --lr or --num_iterations, or raise what the distance costs (--beta, of ppo "
         "--kl_coef); checkpoints before this step are intact"));
}

/// One step; while the loss scale is searched for, as often as that takes.
StepResult take_step(Run& run, const data::StepBatches& batches, SlowWatch& watch) {
  const auto attempt = [&] {
    watch_step(run, batches, watch);
    StepResult result = run_step(run.state, batches, run.config, run.plan.schedule);
    watch.end();
    return result;
  };
  const double first = run.state.loss_scaler.scale();
  double last = 0;
  StepResult result = attempt();
  while (result.repeats) {
    last = result.loss_scale;
    log::debug("step {}: overflow at loss scale {:g}", run.state.step + 1, last);
    stop_in_search(run, batches);
    result = attempt();
  }
  if (last > 0) {
    log::info(
        "step {}: gradients overflowed at loss scales from {:g} down to {:g}; it was repeated "
        "at {:g}, and no step is lost",
        run.state.step, first, last, result.loss_scale);
  }
  return result;
}

/// Finishes the checkpoint that was begun before the run failed, because it is good. Errors of this
/// are only logged, because the run already ends with another one.
void finish_saving(Run& run) {
  try {
    go_on_saving(run, /*waits=*/true);
  } catch (const Error& error) {
    log::warning("{}", error.what());
  }
}

/// Whether memory has been counted over enough steps, of which `last` is the last: one. If answers
/// are drawn, over all steps of a rollout and one more, so that a rollout is counted while
/// gradients already have memory. Where chance says which steps draw, up to such a step after the
/// first.
bool has_counted_enough(const Run& run, int64_t steps, const StepResult& last) {
  constexpr int64_t kMostByChance = 16;
  const settings::ObjectiveConfig& objective = run.config.objective;
  if (!objective.draws() || run.state.step == run.plan.total_steps) return true;
  if (objective.is_rewarded()) return steps > objective.policy.steps * objective.policy.iterations;
  const auto drawn = last.metrics.find("on_policy");
  const bool has_drawn = drawn != last.metrics.end() && drawn->second > 0;
  return steps >= kMostByChance || (steps > 1 && has_drawn);
}

/// An evaluation in whose midst a signal stopped the run, which it goes on with.
void evaluate_what_was_stopped(Run& run, SlowWatch& watch) {
  if (!run.evaluation_is_due) return;
  try {
    evaluate_and_save(run, watch, run.state.step == run.plan.total_steps, /*epoch_ended=*/false);
  } catch (const RolloutStopped&) {
    stop_on_signal(run);  // the checkpoint that it went on from still says so
  }
}

/// What a last step is followed by, of a step that --early_stop_interval made the last.
void stop_early(Run& run, const data::StepBatches& batches, const StepResult& result,
                const std::function<void()>& log_step) {
  const RunProgress& progress = run.progress;
  const int64_t count = progress.evaluations_since_best;
  if (run.config.output.stops_at_saves) {
    log::info("stopped early after step {}: {} checkpoints in a row, and no better evaluation",
              run.state.step, count);
  } else if (!progress.best_metric.empty()) {
    log::info("stopped early after step {}: {} evaluations in a row found no better {} than {:.4f}",
              run.state.step, progress.evaluations_since_best, progress.best_metric,
              progress.best_value());
  } else if (run.config.objective.is_rewarded()) {
    log::info(
        "stopped early after step {}: {} evaluations in a row found no better reward than {:.4f}",
        run.state.step, count, -progress.lowest_loss);
  } else {
    log::info(
        "stopped early after step {}: {} evaluations in a row found no better loss than {:.4f}",
        run.state.step, count, progress.lowest_loss);
  }
  if (run.progress.window.steps > 0) log_step();
  refuse_untrained(run);
  check_last_update(run, batches, result.skipped);
  if (saves_by_itself(run.config.output) && run.last_saved_step != run.state.step)
    begin_checkpoint(run);
}

void take_steps(Run& run) {
  SlowWatch watch([&] { return work_done(run.state.model->layer_passes()); },
                  [&](const std::string& line) { run.observer.on_slow(line); },
                  run.config.output.slow_after_s);
  evaluate_what_was_stopped(run, watch);
  double elapsed_s = 0;
  int64_t steps_here = 0;
  while (run.state.step < run.plan.total_steps &&
         !run.progress.stops_early(run.config.output.early_stop)) {
    const double begin = steady_now_s(), epoch = std::floor(run.stream.epoch());
    run.ranks.note_step(run.state.step + 1);
    const bool draws = run.config.objective.draws(), is_first = steps_here == 0;
    if (is_first && draws) run.counted.begin_step(run.state);
    const data::StepBatches batches = next_batches(run);
    if (is_first && !draws) run.counted.begin_step(run.state);
    StepResult result = take_step(run, batches, watch);
    result.metrics.merge(run.stream.figures());
    if (has_counted_enough(run, steps_here + 1, result))
      run.counted.end_step(steps_here + 1, run.planned, run.state, run.ranks,
                           run.config.output.directory);
    const double step_s = steady_now_s() - begin;
    elapsed_s += step_s;
    ++steps_here;
    run.progress.train_seconds += step_s;
    run.progress.window.add(result, step_s, run.stream.data_wait_s(), run.stream.times());
    if (result.skipped) {
      report_bad_step(run, result);
    } else {
      run.progress.loss_sum += result.loss;
      ++run.progress.loss_steps;
    }
    if (!result.skipped) check_kl(run, result);
    const bool last_step = run.state.step == run.plan.total_steps;
    const bool first = run.state.step == 1 && run.config.output.log_first_step;
    const auto log_step = [&] {
      run.observer.look_after_directory(run.progress.log_history, /*needed=*/false);
      run.progress.log_history.push_back(
          run.observer.on_step(record_of(run, result, elapsed_s, steps_here)));
      run.progress.window = {};
    };
    if (first || last_step || run.state.step % run.config.output.logging_steps == 0) log_step();
    if (last_step) {
      refuse_untrained(run);
      check_last_update(run, batches, result.skipped);
    }
    go_on_saving(run, /*waits=*/false);
    try {
      evaluate_and_save(run, watch, last_step, std::floor(run.stream.epoch()) > epoch);
    } catch (const RolloutStopped&) {
      stop_on_signal(run);
    }
    if (last_step) continue;
    if (run.progress.stops_early(run.config.output.early_stop)) {
      stop_early(run, batches, result, log_step);
    } else if (run.stream.is_resumable()) {
      stop_on_signal(run);
    }
  }
}

}  // namespace

void run_loop(Run& run) {
  try {
    take_steps(run);
  } catch (const NumericError&) {
    finish_saving(run);  // every rank throws this error, so all take part
    throw;
  } catch (...) {
    // Other ranks may not have failed, and would not join in the exchanges of saving.
    if (run.ranks.size() == 1) finish_saving(run);
    throw;
  }
  go_on_saving(run, /*waits=*/true);
}

}  // namespace danlu::train
