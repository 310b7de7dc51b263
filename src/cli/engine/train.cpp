// Training: one body behind four verbs, which differ in their defaults.
#include "base/options.h"
#include "cli/engine/engine.h"
#include "train/options/from_options.h"
#include "train/run.h"

namespace danlu::cli {
namespace {

int run_training(const std::string& verb, const Options& options) {
  return train::run(train::config_from_options(verb, options));
}

}  // namespace

int run_sft(const Options& options) { return run_training("sft", options); }

int run_pretrain(const Options& options) { return run_training("pretrain", options); }

int run_posttrain(const Options& options) { return run_training("posttrain", options); }

int run_train(const Options& options) { return run_training("train", options); }

}  // namespace danlu::cli
