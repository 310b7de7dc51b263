// The training verbs: one table, five names.
#include "cli/commands/train_options.h"

#include <utility>

#include "cli/commands/commands.h"
#include "cli/commands/train_profiles.h"

namespace danlu::cli {
namespace {

OptionTable training_table(const std::string& verb, const std::string& summary,
                           const std::string& usage) {
  std::vector<OptionSpec> all;
  for (auto* group : {train_model_options, train_data_options, train_optimizer_options,
                      train_run_options, train_preference_options, train_embedding_options,
                      train_ranking_options, train_reinforcement_options, train_parallel_options,
                      train_expert_options, train_megatron_options, train_foreign_options}) {
    for (OptionSpec& spec : group()) all.push_back(std::move(spec));
  }
  OptionTable table(verb, summary, usage, std::move(all));
  for (OptionProfile& profile : train_profiles(verb)) table.add_profile(std::move(profile));
  return table;
}

}  // namespace

OptionTable sft_options() {
  return training_table("sft", "Supervised fine-tuning on conversations or instructions",
                        "danlu sft [run.yaml] --model DIR --dataset FILE…");
}

OptionTable pretrain_options() {
  return training_table(
      "pretrain", "Pre-training on plain text or Megatron .bin/.idx data",
      "danlu pretrain [run.yaml] --model DIR --data-path PREFIX|FILE… --seq-length 4096");
}

OptionTable train_options() {
  return training_table(
      "train",
      "Train by --stage, as LLaMA-Factory does; without one, as Stanford Alpaca's train.py",
      "danlu train [run.yaml] --model_name_or_path DIR --data_path FILE --output_dir DIR");
}

OptionTable posttrain_options() {
  return training_table("posttrain", "Post-training by --stage, with MindSpeed-LLM's flags",
                        "danlu posttrain --stage sft --model DIR --data-path FILE…");
}

OptionTable rlhf_options() {
  return training_table("rlhf", "Training from preferences or rewards, with ms-swift's flags",
                        "danlu rlhf --rlhf_type dpo --model DIR --dataset FILE…");
}

}  // namespace danlu::cli
