#include "settings/options/recorded_settings.h"

#include <set>
#include <string>

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
  static const std::set<std::string> of_fp16 = {
      "loss_scale", "initial_loss_scale", "loss_scale_window", "hysteresis", "min_loss_scale"};
  if (of_fp16.count(name)) return config.precision != Precision::kF16;
  return name.starts_with("lora_") && config.tuner != Tuner::kLora;
}

}  // namespace

void record_settings(const Options& options, TrainConfig& config) {
  config.args = options.to_json();
  for (const auto& [key, value] : config.args.items()) {
    if (options.is_set(key) && options.source(key) != OptionSource::kEnvironment &&
        !is_outweighed(options, config, key))
      config.settings[key] = value;
  }
  config.of_machine = options.names(OptionScope::kMachine);
  config.of_start = options.names(OptionScope::kStart);
  // A rank in the record must not make a full run one of LoRA.
  config.settings["tuner"] = tuner_name(config.tuner);
  // A profile's length may be more than the model has, which is no error; the same length typed is.
  if (options.is_set("max_length") && options.source("max_length") == OptionSource::kProfile)
    config.settings["max_length"] = config.data.max_length;
  config.settings["profile"] = config.profile.name;  // the file's own keys must not choose another
}

}  // namespace danlu::settings
