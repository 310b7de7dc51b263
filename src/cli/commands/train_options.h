// cli/commands/train_options.h: the pieces of the option table that all training verbs share.
#pragma once
#include <vector>

#include "base/options.h"

namespace danlu::cli {

std::vector<OptionSpec> train_model_options();      ///< model, adapters, tuner
std::vector<OptionSpec> train_data_options();       ///< data sets, template, lengths
std::vector<OptionSpec> train_optimizer_options();  ///< batch, schedule, precision
std::vector<OptionSpec> train_recompute_options();  ///< of activations; of danlu plan too
std::vector<OptionSpec> train_run_options();        ///< output, evaluation, logging, resume
std::vector<OptionSpec>
train_parallel_options();                        ///< DeepSpeed, FSDP, launchers, Megatron's splits
std::vector<OptionSpec> train_launch_options();  ///< processes and machines, of danlu launch too
std::vector<OptionSpec> reward_options();        ///< what judges answers
/// What answers answers.
std::vector<OptionSpec> environment_options(const std::string& group);
/// Texts that end answers and stay in them.
OptionSpec kept_stop_words_option(const std::string& group);
std::vector<OptionSpec> train_reinforcement_options();  ///< answers that are drawn, rewards
std::vector<OptionSpec> train_preference_options();     ///< losses, reference
std::vector<OptionSpec> train_embedding_options();      ///< vectors of texts
std::vector<OptionSpec> train_ranking_options();        ///< of documents for a query
std::vector<OptionSpec> train_expert_options();
std::vector<OptionSpec> train_architecture_options();  ///< retyped, compared with config.json
std::vector<OptionSpec>
train_megatron_options();  ///< retyped architecture, switches without meaning here
std::vector<OptionSpec>
train_foreign_options();  ///< what HF's Trainer, ms-swift and LLaMA-Factory have and Danlu does not

}  // namespace danlu::cli
