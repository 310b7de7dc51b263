#include "cli/commands/commands.h"
#include "cli/commands/foreign_options.h"
#include "cli/commands/inference_options.h"
#include "cli/commands/inference_profiles.h"
#include "cli/commands/row_options.h"
#include "cli/commands/train_options.h"

namespace danlu::cli {
namespace {

std::vector<OptionSpec> rollout_output() {
  return {{.name = "output",
           .help = "a .jsonl file of rows to train on: the prompt's columns, messages with the "
                   "answer, reward, rewards, finish_reason",
           .aliases = {"output_file", "result_path"},
           .group = "Output",
           .required = true},
          {.name = "output_dir",
           .help = "the folder of --output, which is a name alone then",
           .group = "Output"},
          {.name = "overwrite",
           .type = OptionType::kBool,
           .default_text = "false",
           .help = "replace an existing file",
           .aliases = {"override_exist_file"},
           .group = "Output"},
          {.name = "n_best_to_keep",
           .type = OptionType::kInt,
           .default_text = "0",
           .help = "keep the best n answers to each prompt (0 = all)",
           .range = at_least(0),
           .group = "Output"},
          {.name = "min_reward",
           .type = OptionType::kFloat,
           .help = "keep answers with at least this reward",
           .aliases = {"prm_threshold", "reward_threshold"},
           .group = "Output"},
          {.name = "keep_rejected",
           .type = OptionType::kBool,
           .default_text = "false",
           .help = "add each prompt's worst answer as rejected_response: rows for --rlhf_type dpo; "
                   "prompts whose answers are all worth the same are left out",
           .group = "Output"}};
}

/// Flags of ms-swift's sample that it has not.
std::vector<OptionSpec> foreign_sample_options() {
  return {
      unavailable({"sampler_type"}, "answers are drawn from the model that --model names",
                  {"sample"}),
      unavailable({"sampler_engine"}, "answers are drawn from the model that --model names",
                  {"transformers", "pt", "vllm", "lmdeploy", "sglang"}),
      unavailable({"num_sampling_batches", "data_range"}, "--max_samples takes the first prompts"),
      unavailable({"easy_query_threshold"},
                  "prompts stay, however many of their answers are right"),
      unavailable({"cache_files"}, "answers are judged where they are drawn"),
      unavailable({"engine_kwargs"}, "what stands in them are flags of their own here", {"{}"}),
      ignored_switch({"stream"}, "answers go to a file"),
  };
}

/// The rewards by the names of ms-swift's sample, too.
std::vector<OptionSpec> judges_of_rollouts() {
  std::vector<OptionSpec> specs = reward_options();
  for (OptionSpec& spec : specs) {
    if (spec.name == "reward_funcs") spec.aliases.push_back("orm_model");
    if (spec.name == "reward_model") spec.aliases.push_back("prm_model");
  }
  return specs;
}

}  // namespace

namespace {

std::vector<OptionSpec> own_options() {
  return joined({model_options(),
                 {{.name = "dataset",
                   .type = OptionType::kList,
                   .help = "prompts, with whatever columns the rewards need (danlu rlhf draws "
                           "its answers itself, and asks no server)",
                   .aliases = {"input", "train_dataset"},
                   .group = "Input",
                   .required = true},
                  {.name = "max_samples",
                   .type = OptionType::kInt,
                   .default_text = "0",
                   .help = "the first n prompts alone (0 = all)",
                   .aliases = {"limit"},
                   .range = at_least(0).or_value(-1),
                   .group = "Input"},
                  {.name = "columns",
                   .type = OptionType::kJson,
                   .help = "column names of the data set",
                   .aliases = {"map_keys"},
                   .group = "Input"},
                  max_dropped_ratio_option("Input"),
                  {.name = "num_generations",
                   .type = OptionType::kInt,
                   .default_text = "8",
                   .help = "answers to each prompt",
                   .aliases = {"num_return_sequences", "n_samples_per_prompt"},
                   .range = at_least(1).up_to(65536),
                   .group = "Answers"},
                  {.name = "batch_size",
                   .type = OptionType::kInt,
                   .default_text = "64",
                   .help = "answers drawn at a time",
                   .aliases = {"max_batch_size", "num_sampling_batch_size"},
                   .range = at_least(1).up_to(65536),
                   .group = "Answers"},
                  kept_stop_words_option("Answers")},
                 processor_options(),
                 sampling_options(),
                 environment_options("Answers"),
                 judges_of_rollouts(),
                 rollout_output(),
                 foreign_sample_options()});
}

/// What ms-swift's sample takes where a line is silent.
void set_default_of_sample(OptionSpec& spec) {
  if (spec.name == "num_generations") spec.default_text = "64";
  if (spec.name == "n_best_to_keep") spec.default_text = "5";
  if (spec.name == "temperature") spec.default_text = "1";
  if (spec.name == "output_dir") spec.default_text = "sample_output";
  if (spec.name != "output") return;
  spec.required = false;
  spec.help =
      "a .jsonl file of rows to train on: the prompt's columns, messages with the answer, reward, "
      "rewards, finish_reason (default: the time, in output_dir)";
}

OptionTable table_for(const char* verb, const char* summary, const char* usage,
                      std::vector<OptionSpec> own) {
  std::vector<OptionSpec> foreign = foreign_inference_options(own);
  // Elsewhere a prompt gets one answer.
  std::erase_if(foreign, [](const OptionSpec& spec) { return spec.name == "best_of"; });
  return with_inference_profiles(OptionTable(verb, summary, usage, joined({own, foreign})));
}

}  // namespace

OptionTable rollout_options() {
  return table_for("rollout",
                   "Draw answers to prompts and judge them: rows for rejection sampling and DPO",
                   "danlu rollout --model DIR --dataset FILE --reward_funcs accuracy --output "
                   "FILE.jsonl",
                   own_options());
}

OptionTable sample_options() {
  std::vector<OptionSpec> own = own_options();
  for (OptionSpec& spec : own) set_default_of_sample(spec);
  return table_for("sample", "danlu rollout with the defaults of ms-swift's sample",
                   "danlu sample --model DIR --dataset FILE --orm_model accuracy", std::move(own));
}

}  // namespace danlu::cli
