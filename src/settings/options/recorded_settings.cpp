#include "settings/options/recorded_settings.h"

#include "settings/options/change_options.h"

namespace danlu::settings {
namespace {

/// A profile's value that another option, given, takes the place of: it is not a setting of the
/// run.
bool is_outweighed(const Options& options, const TrainConfig& config, const std::string& name) {
  if (options.source(name) != OptionSource::kProfile) return false;
  if (name == "dtype")
    return options.get_bool_or("bf16", false) || options.get_bool_or("fp16", false);
  if (name == "recompute") {
    return options.has_value("gradient_checkpointing") ||
           options.has_value("recompute_activations");
  }
  if (name == "rpo_alpha") return config.objective.name != "dpo";
  if (name == "loss_average") return !config.objective.averages_micro_batches;
  static const std::set<std::string> of_fp16 = {
      "loss_scale", "initial_loss_scale", "loss_scale_window", "hysteresis", "min_loss_scale"};
  if (of_fp16.count(name)) return config.precision != Precision::kF16;
  return name.starts_with("lora_") && config.tuner != Tuner::kLora;
}

}  // namespace

RecordedSettings recorded_settings(const Options& options, const TrainConfig& config) {
  RecordedSettings recorded;
  recorded.args = options.to_json();
  for (const auto& [key, value] : recorded.args.items()) {
    if (options.is_set(key) && options.source(key) != OptionSource::kEnvironment &&
        !is_outweighed(options, config, key))
      recorded.settings[key] = value;
  }
  // What the model's files said: those of the run may be others.
  if (config.objective.kind == ObjectiveKind::kEmbedding ||
      config.objective.kind == ObjectiveKind::kRanking)
    recorded.args["use_chat_template"] = config.data.uses_template;
  // What the model's name chose, or whose template of that name it is: who reads the record has
  // neither the name nor the line.
  if (config.data.template_name != "auto") recorded.args["template"] = config.data.template_name;
  record_changes(config.model.changes, recorded.args);
  recorded.of_machine = options.names(OptionScope::kMachine);
  recorded.of_start = options.names(OptionScope::kStart);
  // A rank in the record must not make a full run one of LoRA.
  recorded.settings["tuner"] = options.get_string_or("tuner", tuner_name(config.tuner));
  // A profile's length may be more than the model has, which is no error; the same length typed is.
  if (options.is_set("max_length") && options.source("max_length") == OptionSource::kProfile)
    recorded.settings["max_length"] = config.data.max_length;
  // What other flags of the line have made of a profile's word.
  if (options.source("eval_strategy") == OptionSource::kProfile) {
    recorded.settings["eval_strategy"] = config.output.evaluate == Interval::kNo ? "no" : "steps";
    // No word of it says that: the record's profile and its do_eval do.
    if (config.output.evaluate == Interval::kEnd) recorded.settings.erase("eval_strategy");
  }
  if (options.source("truncation") == OptionSource::kProfile)
    recorded.settings["truncation"] = recorded.args["truncation"] = config.data.truncation;
  recorded.settings["profile"] =
      config.profile.name;  // the file's own keys must not choose another
  return recorded;
}

}  // namespace danlu::settings
