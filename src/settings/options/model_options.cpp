#include "settings/options/model_options.h"

#include <system_error>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "settings/options/change_options.h"
#include "settings/options/described_by_flags.h"
#include "settings/options/model_names.h"
#include "text/template_choice.h"
#include "weights/native/machine_part.h"

namespace danlu::settings {
namespace {

/// Megatron begins pre-training with random weights where --load holds none, unless a flag forbids
/// it; no other training does.
bool may_be_random(const Options& options, Task task) {
  if (options.has_value("from_scratch") && options.is_given("from_scratch"))
    return options.get_bool("from_scratch");
  return task == Task::kPretrain && !options.get_bool("exit_on_missing_checkpoint") &&
         !options.get_bool("finetune") && !options.get_bool("no_load_optim");
}

/// Where --load names a run: its own directory goes on as the run that it is; of another's, what it
/// has kept in Megatron's format is meant, as where Megatron saved it.
void load_run(const Options& options, Task task, ModelSource& source) {
  std::error_code unknown;
  if (fs::equivalent(source.path, options.get_string_or("output_dir", ""), unknown)) {
    const bool goes_on = !options.get_bool("finetune") &&
                         !options.get_bool("overwrite_output_dir") &&
                         options.get_string_or("resume", "") != "none";
    if (!goes_on) return;
    if (began_at_random(source.path)) {
      source.from_scratch = true;
      if (source.config_dir.empty()) source.config_dir = source.fallback_dir;
    } else if (const auto first = began_from(source.path)) {
      source.path = *first;
    }
    return;
  }
  const bool as_megatron =
      task == Task::kPretrain || options.get_string_or("save_format", "") == "mcore";
  if (as_megatron && source.continues && !source.from_scratch)
    source.path = kept_in_megatrons_format(source.path);
}

/// What the line says of its model, before anything there is looked at. `loads`: by --load.
/// `locate`: a path from a name.
ModelSource source_from(const Options& options, Task task, bool loads,
                        fs::path (*locate)(const std::string&)) {
  ModelSource source;
  const std::string name =
      loads ? options.get_string("load")
            : options.get_string_or("model", options.get_string_or("model_type", ""));
  const bool is_described = name.empty() && task == Task::kPretrain && describe_a_model(options);
  if (name.empty() && !is_described) {
    throw UsageError(tr("[train] --model: no model was named"),
                     tr("give a HF directory: --model DIR"));
  }
  if (!is_described) source.path = loads ? fs::path(name) : locate(name);
  source.config_dir = options.get_string_or("hf_config", "");
  source.iteration = options.get_string_or("iteration", "");
  source.adapter = options.get_string_or("adapters", "");
  if (const std::string& named = source.adapter.native();
      named.find(',') != std::string::npos && !fs::exists(source.adapter)) {
    throw UsageError(tr("[train] {} {}: one adapter is trained further, and these are several",
                        options.given_as("adapters"), named),
                     tr("danlu merge joins those before the last with the model"));
  }
  if (options.is_given("lora_alpha")) source.adapter_alpha = options.get_float("lora_alpha");
  source.tokenizer = options.get_string_or("tokenizer", options.get_string_or("vocab_file", ""));
  source.tokenizer_is_named = !source.tokenizer.empty();
  if (source.tokenizer.empty() && loads && options.has_value("model"))
    source.tokenizer = locate(options.get_string("model"));
  source.fallback_dir = text::directory_of_model(source.tokenizer);
  if (is_described) source.described = described_by_flags(options, source.tokenizer);
  source.from_scratch = is_described || options.get_bool("from_scratch");
  source.continues = !options.get_bool("finetune") && !options.get_bool("no_load_optim");
  return source;
}

/// No weights are there: random ones are taken. Errors: ModelError where that was not meant.
void begin_at_random(const Options& options, Task task, const char* flag, ModelSource& source) {
  // What is resumed begins with what it saved, wherever the weights of its first step were.
  const bool is_output = source.path.lexically_normal() / "" ==
                         fs::path(options.get_string_or("output_dir", "")).lexically_normal() / "";
  const bool goes_on = is_output && options.get_string_or("resume", "") != "none";
  if (!goes_on) weights::refuse_part_without_model(source.path);
  const std::string of_run = weights::hint_of_unfinished_run(source.path);
  const std::string below = weights::hint_of_models_below(source.path);
  // A place that a script will save to is not there at its first start; a mistyped one has
  // something beside it or below.
  const std::string near = below.empty() ? did_you_mean_path(source.path) : below;
  const bool is_mistaken = (!of_run.empty() && !goes_on) || (!near.empty() && !is_output);
  if (!may_be_random(options, task) || is_mistaken) {
    throw ModelError(
        tr("[train] {} {}: no weights there", options.given_as(flag), source.path.string()),
        !of_run.empty()  ? of_run
        : !below.empty() ? below
                         : near + tr("--from_scratch begins with random ones"));
  }
  source.from_scratch = true;
  if (of_run.empty()) {
    log::warning("{} {}: no checkpoint there; random weights", options.given_as(flag),
                 source.path.string());
  }
}

}  // namespace

NamedModel model_to_train(const Options& options, Task task,
                          const std::optional<arch::ScoreHead>& score) {
  const bool loads = options.has_value("load");
  ModelSource source =
      source_from(options, task, loads, [](const std::string& name) { return locate_model(name); });
  source.score = score;
  if (loads) load_run(options, task, source);
  if (!source.from_scratch && holds_no_weights(source.path))
    begin_at_random(options, task, loads ? "load" : "model", source);
  weights::CheckpointSource opened = open_model(source);
  weights::report_idle_iteration(opened, source.iteration, options.given_as("iteration"));
  source.companions = opened.companions;
  if (source.tokenizer.empty())
    source.tokenizer = source.companions.empty() ? source.path : source.companions;
  source.changes = changes_to_train(options, source, opened.config, /*is_planned=*/false);
  make_changes(source.changes, opened);
  return {std::move(source), std::move(opened.config)};
}

NamedModel model_to_plan(const Options& options, Task task, bool may_load,
                         const std::optional<arch::ScoreHead>& score) {
  const bool loads = may_load && options.has_value("load");
  ModelSource source = source_from(options, task, loads, located_if_named);
  source.score = score;
  if (loads) load_run(options, task, source);
  ModelSource described = source;
  described.from_scratch |= source.path.extension() == ".json" || holds_no_weights(source.path) ||
                            fs::exists(source.path / "config.json");
  weights::CheckpointSource opened = open_model(described);
  if (described.tokenizer.empty())
    described.tokenizer = opened.companions.empty() ? described.path : opened.companions;
  source.changes = changes_to_train(options, described, opened.config, /*is_planned=*/true);
  make_changes(source.changes, opened);
  return {std::move(source), std::move(opened.config)};
}

}  // namespace danlu::settings
