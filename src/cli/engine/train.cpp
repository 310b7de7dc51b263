// Training: one body behind four verbs, which differ in their defaults.
#include "base/options.h"
#include "cli/commands/train_profiles.h"
#include "cli/engine/engine.h"
#include "train/options/from_options.h"
#include "train/run.h"

namespace danlu::cli {
namespace {

int run_training(const std::string& verb, const Options& options) {
  return train::run(train::config_from_options(verb, options));
}

/// `danlu train` without a stage stands for Stanford Alpaca's train.py: its hidden defaults apply
/// wherever neither a flag nor a profile said otherwise.
Options with_alpaca_defaults(Options options) {
  for (const auto& [name, value] : train_profiles().at("alpaca")) {
    if (!options.is_set(name)) options.set(name, value, OptionSource::kProfile);
  }
  return options;
}

}  // namespace

int run_sft(const Options& options) { return run_training("sft", options); }

int run_pretrain(const Options& options) { return run_training("pretrain", options); }

int run_posttrain(const Options& options) { return run_training("posttrain", options); }

int run_train(const Options& options) {
  const bool as_alpaca = !options.is_set("stage") && !options.is_set("profile_name");
  return run_training("train", as_alpaca ? with_alpaca_defaults(options) : options);
}

}  // namespace danlu::cli
