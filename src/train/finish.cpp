#include "train/finish.h"

#include <fmt/format.h>

#include "base/file.h"
#include "base/log.h"
#include "base/shell_quote.h"
#include "device/dtype.h"
#include "models/training_memory.h"
#include "train/rollouts/rollout_journal.h"
#include "train/run_dir/run_dir.h"

namespace danlu::train {
namespace {

std::string next_command(const TrainConfig& config) {
  const std::string run = shell_quoted(config.output.directory.string());
  if (config.objective.kind == settings::ObjectiveKind::kReward)
    return "danlu rlhf --rlhf_type grpo --model … --dataset … --reward_model " + run;
  const std::string what = (config.tuner == Tuner::kLora ? "--adapters " : "--model ") + run;
  if (config.objective.kind == settings::ObjectiveKind::kClasses ||
      config.objective.kind == settings::ObjectiveKind::kEmbedding)
    return tr("danlu infer {} --dataset … --output …", what);
  if (config.objective.kind == settings::ObjectiveKind::kRanking) return "danlu serve " + what;
  if (config.objective.process.has_classes) return "danlu inspect " + run;
  if (config.task == Task::kPretrain) return "danlu infer --model " + run + " --raw --prompt \"…\"";
  const bool own_template =
      config.data.template_name == "auto" || config.data.template_name == "hf";
  const std::string named =
      own_template ? "" : " --template " + shell_quoted(config.data.template_name);
  if (config.tuner == Tuner::kLora) {
    // Adapters of a base in 4 bits were never beside another one.
    const std::string base =
        config.nf4 && !config.nf4->is_in_files ? " --quantize " + std::string("nf4") : "";
    return "danlu chat --model " + shell_quoted(config.model.path.string()) + " --adapters " + run +
           base + named;
  }
  return "danlu chat --model " + run + named;
}

fs::path checkpoint_of(const Run& run, int64_t step) {
  return run.config.output.directory / fmt::format("checkpoint-{}", step);
}

/// The finished model in the run directory itself. Returns the step that it is of.
int64_t publish(Run& run) {
  const OutputConfig& output = run.config.output;
  const DType trained = device::dtype_of(run.state.model->dtype());
  const DType wanted = output.final_dtype.value_or(trained);
  const bool best = output.load_best_at_end && run.progress.best_step > 0 &&
                    run.progress.best_step != run.state.step;
  const fs::path checkpoint = checkpoint_of(run, best ? run.progress.best_step : run.state.step);
  // Ranks agree on what only rank 0 needs to see.
  const bool saved =
      run.ranks.from_first(fs::exists(checkpoint / "DONE") ? "saved" : "") == "saved";
  if (best && !saved)
    log::warning("{}, the best, is gone: the last step's weights are taken", checkpoint.string());
  if (saved && (wanted == trained || run.config.tuner == Tuner::kLora)) {
    if (run.ranks.is_first()) publish_model(checkpoint, output.directory);
  } else if (best && saved) {
    if (run.ranks.is_first())
      publish_model_in_type(checkpoint, run.state.model->config(), wanted, output.directory);
  } else {
    run.state.model->memory().settle();
    write_model_files(*run.state.model, run.config, wanted, output.directory);
  }
  if (run.ranks.is_first())
    write_embedding_files(run.config, run.state.model->config(), output.directory);
  run.ranks.wait_for(0);  // before what follows exchanges anything
  return best && saved ? run.progress.best_step : run.state.step;
}

RunSummary summarise(const Run& run) {
  RunSummary summary;
  summary.steps = run.state.step;
  summary.samples = run.stream.num_trained();
  summary.tokens = run.state.tokens_seen;
  summary.skipped_steps = run.state.skipped_steps;
  summary.train_seconds = run.progress.train_seconds;
  summary.mean_loss = run.progress.loss_steps > 0
                          ? run.progress.loss_sum / static_cast<double>(run.progress.loss_steps)
                          : 0;
  summary.best_eval_loss = run.progress.best_loss;
  summary.best_metric = run.progress.best_metric;
  if (!summary.best_metric.empty()) summary.best_eval_loss = run.progress.best_value();
  summary.best_step = run.progress.best_step;
  summary.model_directory = run.config.output.directory;
  if (fs::exists(checkpoint_of(run, run.state.step)))
    summary.last_checkpoint = checkpoint_of(run, run.state.step);
  if (run.progress.best_step > 0)
    summary.best_checkpoint = checkpoint_of(run, run.progress.best_step);
  std::error_code unknown;  // nothing may have been saved there, or somebody has removed it
  if (!fs::exists(summary.best_checkpoint / "DONE", unknown)) summary.best_checkpoint.clear();
  summary.next_command = next_command(run.config);
  return summary;
}

}  // namespace

void finish(Run& run) {
  run.observer.look_after_directory(run.progress.log_history, /*needed=*/true);
  const int64_t step = publish(run);
  if (run.critic) run.critic->publish(*run.state.model, run.config.output.directory, step);
  run.megatron_copies.wait();
  if (run.run_dir.keeper == run.ranks.rank() && run.config.objective.draws())
    remove_journals(run.config.output.directory);
  if (run.ranks.is_first()) {
    run.observer.on_finish(summarise(run));
    // Last of all: what is killed before this is made good by the same command.
    mark_finished(run.config.output.directory, run.state.step);
  }
  run.ranks.wait_for(0);
}

}  // namespace danlu::train
