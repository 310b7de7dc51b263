#include "train/start/earlier_run.h"

#include <fmt/format.h>

#include "base/file.h"
#include "base/log.h"
#include "text/template_record.h"
#include "train/run_dir/resume.h"
#include "train/run_dir/resume_everywhere.h"
#include "train/run_dir/run_dir.h"
#include "train/run_dir/save.h"

namespace danlu::train {
namespace {

bool is_newest(const checkpoint::Loaded& checkpoint, const fs::path& run_dir) {
  const std::vector<checkpoint::Found> found = checkpoint::list(run_dir);
  return !found.empty() && found.back().directory.filename() == checkpoint.directory.filename();
}

void keep_steps(const Json& identity, TrainConfig& config) {
  const auto began_otherwise = [&](const char* key) {
    return !identity.contains(key) || identity.at(key).is_null();
  };
  if (config.objective.averages_micro_batches && !config.given_as.count("loss_average") &&
      began_otherwise("loss_average")) {
    config.objective.averages_micro_batches = false;
    config.args["loss_average"] = config.settings["loss_average"] = "targets";
    log::info("the run goes on with the mean over targets, as it began (--loss_average targets)");
  }
  const bool has_texts_as_samples =
      config.task == settings::Task::kPretrain && !config.data.uses_template;
  if (has_texts_as_samples && began_otherwise("texts_are_samples")) {
    config.data.uses_template = true;
    config.data.pack_sequences = false;
    log::info("texts fill rows of {} tokens one behind the other, as this run began",
              config.data.max_length);
  }
  if (config.data.runs_on && began_otherwise("steps_run_on")) {
    config.data.runs_on = false;
    if (!config.given_as.count("dataloader_drop_last")) config.data.drops_last = false;
    log::info("the last step of an epoch stays what is left of it, as this run began");
  }
  if (config.data.texts_end_epochs && began_otherwise("texts_end_epochs")) {
    config.data.texts_end_epochs = false;
    log::info("the last step of an epoch goes on into the next, as this run began");
  }
}

void keep_rows(const Json& identity, TrainConfig& config) {
  if (config.data.splits_rows && !identity.contains("splits_rows")) {
    config.data.splits_rows = false;
    if (config.data.validation_ratio > 0)
      log::info("rows stay held out as this run began: of what path#n takes");
  }
  // With every profile it was the run's own seed once.
  const auto seed = json_get<uint64_t>(identity, "data_seed");
  if (!seed || *seed == config.data.seed || *seed != config.seed ||
      config.given_as.count("data_seed"))
    return;
  config.data.seed = *seed;
  config.args["data_seed"] = config.settings["data_seed"] = *seed;
  log::info("rows are drawn by --data_seed {}, as this run began", *seed);
}

/// LLaMA-Factory's names meant MindSpeed-LLM's templates once.
void keep_template(const checkpoint::Loaded& from, TrainConfig& config) {
  std::string& name = config.data.template_name;
  const std::string earlier = text::template_of_earlier_run(from.args, name);
  if (earlier == name) return;
  log::info(
      "{}: this run began when {} meant MindSpeed-LLM's template of that name, and goes on with it",
      from.directory.string(), earlier);
  name = earlier;
  config.args["template"] = earlier;
}

/// Adapters that a run goes on from were a part of the reference once, whoever's line it was.
void keep_reference(const Json& identity, const std::filesystem::path& directory,
                    TrainConfig& config) {
  if (!config.objective.base_is_reference) return;
  const Json objective = identity.value("objective", Json::object());
  if (!objective.is_object() || objective.contains("base_is_reference")) return;
  config.objective.base_is_reference = false;
  log::info("{}: this run began with its adapters in the reference, and goes on so",
            directory.string());
}

}  // namespace

EarlierRun find_earlier_run(const TrainConfig& config, const Ranks& ranks, const Shared& run_dir) {
  EarlierRun earlier{find_checkpoint_everywhere(config, ranks, run_dir)};
  earlier.is_own = earlier.checkpoint && is_of_run(*earlier.checkpoint, config.output.directory);
  if (!earlier.is_own) refuse_to_lose_files(config);
  return earlier;
}

void go_on_as_begun(const EarlierRun& earlier, TrainConfig& config) {
  if (!earlier.checkpoint) return;
  const Json identity = earlier.checkpoint->trainer_state.value("identity", Json::object());
  keep_steps(identity, config);
  keep_rows(identity, config);
  keep_template(*earlier.checkpoint, config);
  keep_reference(identity, earlier.checkpoint->directory, config);
}

Origin origin_of(const TrainConfig& config, const weights::CheckpointSource& source,
                 const Json& identity, const EarlierRun& earlier) {
  Origin origin{describe_weights(config.model, source, config.seed), std::nullopt};
  if (!earlier.checkpoint)
    origin.continued = continued_from(config, source, identity, origin.described);
  return origin;
}

bool is_complete(const TrainConfig& config, const RunPlan& plan, const TrainState& state,
                 const RunProgress& progress, const Ranks& ranks) {
  const bool stopped = progress.stops_early(config.output.early_stop);
  if (state.step < plan.total_steps && !stopped) return false;
  if (ranks.from_first(is_finished(config.output.directory) ? "finished" : "").empty())
    return false;
  if (state.step < plan.total_steps) {
    log::info("this run is complete: {} ended it after step {}. A larger number trains on",
              config.said("early_stop_interval", config.output.early_stop), state.step);
    return true;
  }
  log::info(
      "this run is complete: {} steps are done, {} are asked for. To train on, raise {} and add "
      "--resume {}",
      state.step, plan.total_steps,
      config.flag(config.batch.max_steps > 0       ? "max_steps"
                  : config.batch.train_samples > 0 ? "train_samples"
                                                   : "epochs"),
      (config.output.directory / fmt::format("checkpoint-{}", state.step)).string());
  return true;
}

void make_good(Run& run, const checkpoint::Loaded& from) {
  const bool keeps = run.run_dir.keeper == run.ranks.rank();
  if (!keeps || !is_newest(from, run.config.output.directory)) return;
  settle_checkpoints(run.config.output, from.directory, run.progress.best_step, {},
                     run.progress.saved_as_best);
  if (run.ranks.is_first()) run.megatron_copies.catch_up();
}

}  // namespace danlu::train
