#include "cli/commands/commands.h"
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
          {.name = "overwrite",
           .type = OptionType::kBool,
           .default_text = "false",
           .help = "replace an existing file",
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

}  // namespace

OptionTable rollout_options() {
  std::vector<OptionSpec> own =
      joined({model_options(),
              {{.name = "dataset",
                .type = OptionType::kList,
                .help = "prompts, with whatever columns the rewards need",
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
              reward_options(),
              rollout_output()});
  for (OptionSpec& spec : own) {
    if (spec.name == "max_new_tokens") spec.aliases.push_back("max_completion_length");
  }
  std::vector<OptionSpec> foreign = foreign_inference_options(own);
  // Elsewhere a prompt gets one answer.
  std::erase_if(foreign,
                [](const OptionSpec& spec) { return spec.name == "num_return_sequences"; });
  return with_inference_profiles(OptionTable(
      "rollout", "Draw answers to prompts and judge them: rows for rejection sampling and DPO",
      "danlu rollout --model DIR --dataset FILE --reward_funcs accuracy --output FILE.jsonl",
      joined({own, foreign})));
}

}  // namespace danlu::cli
