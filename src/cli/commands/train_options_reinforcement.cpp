// Training from rewards: how answers are drawn, judged and learnt from.
#include "cli/commands/foreign_options.h"
#include "cli/commands/inference_options.h"
#include "cli/commands/train_options.h"

namespace danlu::cli {
namespace {

constexpr const char* kDrawing = "Answers that the model draws";
constexpr const char* kJudging = "Rewards";
constexpr const char* kLearning = "Learning from rewards";

OptionSpec number(const char* group, OptionType type, std::string name, std::string fallback,
                  std::string help, std::vector<std::string> aliases = {}) {
  OptionSpec spec{.name = std::move(name),
                  .type = type,
                  .default_text = std::move(fallback),
                  .help = std::move(help),
                  .aliases = std::move(aliases),
                  .group = group};
  return spec;
}

OptionSpec counted(const char* group, std::string name, std::string fallback, std::string help,
                   std::vector<std::string> aliases = {}) {
  OptionSpec spec = number(group, OptionType::kInt, std::move(name), std::move(fallback),
                           std::move(help), std::move(aliases));
  spec.range = at_least(1);
  return spec;
}

OptionSpec amount(const char* group, std::string name, std::string fallback, std::string help,
                  std::vector<std::string> aliases = {}) {
  OptionSpec spec = number(group, OptionType::kFloat, std::move(name), std::move(fallback),
                           std::move(help), std::move(aliases));
  spec.range = at_least(0);
  return spec;
}

}  // namespace

std::vector<OptionSpec> environment_options(const std::string& group) {
  OptionSpec turns = counted(group.c_str(), "max_turns", "",
                             "of environment: answers in a conversation at most (default: 8)");
  turns.range = at_least(1).up_to(1000);
  return {{.name = "environment",
           .help = "what answers the model's answers, so that it goes on: program:COMMAND, a "
                   "program of yours that is told of conversations and says how they go on "
                   "(docs/reinforcement.md), math_tip_trick or thinking_tips_scheduler",
           .aliases = {"multi_turn_scheduler"},
           .group = group},
          turns,
          amount(group.c_str(), "environment_timeout", "60",
                 "of environment: seconds that a program has for the conversations of a turn")};
}

namespace {

std::vector<OptionSpec> drawing() {
  OptionSpec temperature =
      amount(kDrawing, "temperature", "1",
             "of the answers that are drawn; of gkd (default: 0.9) of the loss too");
  temperature.range = above(0);
  OptionSpec top_p = amount(kDrawing, "top_p", "1",
                            "draw from the likeliest tokens, which together "
                            "have this probability");
  top_p.range = above(0).up_to(1);
  OptionSpec top_k = number(kDrawing, OptionType::kInt, "top_k", "0",
                            "draw from so many of the likeliest tokens; 0: from all");
  top_k.range = at_least(0).or_value(-1);
  OptionSpec min_p = amount(kDrawing, "min_p", "0",
                            "leave out tokens below this share of the likeliest one's probability");
  min_p.range = at_least(0).below(1);
  OptionSpec repetition = amount(kDrawing, "repetition_penalty", "1",
                                 "above 1: tokens that were there become less likely");
  repetition.range = above(0);
  return {
      counted(kDrawing, "num_generations", "", "answers to each prompt (default: 8, of ppo 1)",
              {"n_samples_per_prompt"}),
      counted(kDrawing, "max_completion_length", "512", "tokens of an answer at most",
              {"max_new_tokens", "response_length"}),
      counted(kDrawing, "partial_rollout_max_split", "1",
              "parts in which the longest answer is drawn: a rollout that has its answers leaves "
              "the others, which the next one draws further"),
      {.name = "do_sample",
       .type = OptionType::kBool,
       .default_text = "true",
       .help =
           "answers are drawn by chance; false, the likeliest ones alone, is an error where they "
           "are learnt from",
       .group = kDrawing},
      temperature,
      top_p,
      top_k,
      min_p,
      repetition,
      kept_stop_words_option(kDrawing),
      counted(kDrawing, "num_mini_batches", "1",
              "steps that the answers drawn at one time are divided into", {"ppo_buffer_size"}),
      counted(kDrawing, "steps_per_generation", "",
              "the same in micro-batches, as ms-swift and TRL count (default: those of a step); in "
              "Megatron-SWIFT's lines in steps"),
      counted(kDrawing, "generation_batch_size", "",
              "the same as the number of all answers drawn at one time"),
      counted(kDrawing, "num_iterations", "",
              "passes over the answers drawn at one time (default: 1, of ppo 4, in MindSpeed's "
              "lines 1)",
              {"num_ppo_epochs", "ppo_epochs"}),
      {.name = "log_completions",
       .type = OptionType::kBool,
       .default_text = "false",
       .help = "write every answer with its rewards to samples.jsonl",
       .group = kDrawing}};
}

}  // namespace

OptionSpec kept_stop_words_option(const std::string& group) {
  OptionSpec spec = stop_words_option(group);
  spec.help =
      "an answer ends behind the first of these in its text, and keeps it; a word is taken with "
      "its spaces and commas";
  return spec;
}

std::vector<OptionSpec> reward_options() {
  return {
      {.name = "reward_funcs",
       .type = OptionType::kList,
       .help = "what judges answers: accuracy, format, gsm8k, …, or \"program:COMMAND\", a word of "
               "its own whose commas are the command's (docs/reinforcement.md)",
       .aliases = {"verifier_function"},
       .group = kJudging,
       .takes_rest_behind = "program:"},
      {.name = "reward_model",
       .type = OptionType::kList,
       .help = "reward models that judge too: directories of models, or of adapters on one",
       .group = kJudging},
      {.name = "reward_adapters",
       .type = OptionType::kList,
       .help = "adapters of each reward model, where it is named without them",
       .aliases = {"reward_model_adapters"},
       .group = kJudging},
      {.name = "reward_weights",
       .type = OptionType::kList,
       .help = "of each of them in the sum, reward models last (default: 1)",
       .aliases = {"verifier_weight"},
       .group = kJudging},
      {.name = "reward_column",
       .help = "the column with the right answer (default: solution, answer, ground_truth or "
               "labels)",
       .group = kJudging},
      {.name = "dataset_category",
       .type = OptionType::kList,
       .help = "of each data set 0, judged by reward models alone, or 1, by rules alone (MindSpeed-"
               "LLM); an error where both judge",
       .group = kJudging},
      amount(kJudging, "reward_timeout", "60", "seconds that a program has for a step's answers"),
      {.name = "allow_code_execution",
       .type = OptionType::kBool,
       .default_text = "false",
       .help = "of code: run the code that the model writes, in a sandbox",
       .aliases = {"confirm_run_unsafe_code"},
       .group = kJudging},
      {.name = "python",
       .default_text = "python3",
       .help = "of code: the interpreter that runs it",
       .group = kJudging,
       .scope = OptionScope::kMachine},
      counted(kJudging, "cosine_max_len", "",
              "of cosine: tokens of the longest answer (default: max_completion_length)"),
      number(kJudging, OptionType::kFloat, "cosine_min_len_value_wrong", "-0.5",
             "of cosine: for the shortest wrong answer"),
      number(kJudging, OptionType::kFloat, "cosine_max_len_value_wrong", "0",
             "of cosine: for the longest wrong answer"),
      number(kJudging, OptionType::kFloat, "cosine_min_len_value_correct", "1",
             "of cosine: for the shortest right answer"),
      number(kJudging, OptionType::kFloat, "cosine_max_len_value_correct", "0.5",
             "of cosine: for the longest right answer"),
      counted(kJudging, "repetition_n_grams", "3", "of repetition: words in a row"),
      number(kJudging, OptionType::kFloat, "repetition_max_penalty", "-1",
             "of repetition: where all words in a row come again"),
      counted(kJudging, "soft_max_length", "",
              "of soft_overlong: the limit (default: max_completion_length)"),
      counted(kJudging, "soft_cache_length", "",
              "of soft_overlong: tokens before the limit where it begins"),
  };
}

namespace {

OptionSpec sharpness(std::string name, std::string fallback, std::string help,
                     std::vector<std::string> aliases) {
  OptionSpec spec =
      amount(kLearning, std::move(name), std::move(fallback), std::move(help), std::move(aliases));
  spec.range = above(0);
  return spec;
}

OptionSpec amount_or_none(std::string name, std::string help) {
  OptionSpec spec = amount(kLearning, std::move(name), "", std::move(help));
  spec.may_be_none = true;
  return spec;
}

std::vector<OptionSpec> learning() {
  return {
      {.name = "advantage_estimator",
       .default_text = "grpo",
       .help = "what an answer is worth beside the others to its prompt",
       .aliases = {"adv_estimator"},
       .choices = {"grpo", "group_norm", "rloo", "reinforce_plus_plus", "reinforce_plus_plus_token",
                   "reinforce_plus_plus_baseline"},
       .group = kLearning},
      {.name = "scale_rewards",
       .help = "of grpo: rewards are divided by their deviation in the group, in the batch, or "
               "not; gdpo: each reward by its own, then their sum by that of the batch (default: "
               "group; of rloo none, of reinforce_plus_plus batch)",
       .choices = {"group", "batch", "none", "gdpo", "true", "false"},
       .group = kLearning},
      {.name = "importance_sampling_level",
       .default_text = "token",
       .help = "whether the ratio of probabilities is of each token or of the whole answer (GSPO)",
       .choices = {"token", "sequence"},
       .group = kLearning},
      amount(kLearning, "epsilon", "0.2", "how far the ratio may fall below 1",
             {"epsilon_low", "clip_ratio", "cliprange"}),
      amount_or_none("epsilon_high", "how far it may rise above 1 (default: as epsilon)"),
      amount_or_none("delta", "a ratio is never larger, whatever the reward"),
      sharpness("tau_pos", "1",
                "of sapo: how sharply a ratio is held back where an answer is "
                "worth more than others",
                {"sapo_temperature_pos"}),
      sharpness("tau_neg", "1.05", "of sapo: the same where it is worth less",
                {"sapo_temperature_neg"}),
      amount(kLearning, "kl_beta", "",
             "weight of the distance to the reference: of grpo in the loss, where --beta is not "
             "given (default: 0.04), of ppo in the rewards (default: 0.05, in MindSpeed's lines "
             "0.3, in LLaMA-Factory's 0.2); 0: there is no reference",
             {"kl_coef", "kl_loss_coef"}),
      {.name = "kl_in_reward",
       .type = OptionType::kBool,
       .help = "of grpo: this distance is taken from an answer's reward, not added to the loss "
               "(default: of rloo and reinforce_plus_plus)",
       .group = kLearning},
      amount(kLearning, "max_kl", "0", "a run whose distance grows beyond it stops; 0: none does"),
      {.name = "overlong_filter",
       .type = OptionType::kBool,
       .default_text = "false",
       .help = "answers that were cut at the limit are not learnt from",
       .aliases = {"mask_truncated_completions"},
       .group = kLearning},
      {.name = "dynamic_sample",
       .type = OptionType::kBool,
       .default_text = "false",
       .help = "of grpo: prompts whose answers all got one reward give way to further prompts "
               "(DAPO)",
       .group = kLearning},
      counted(kLearning, "max_resample_times", "3",
              "of dynamic_sample: rounds of further prompts at most"),
      ignored({"use_vllm",
               "vllm_mode",
               "vllm_gpu_memory_utilization",
               "vllm_tensor_parallel_size",
               "vllm_max_model_len",
               "vllm_enable_prefix_caching",
               "vllm_enable_lora",
               "vllm_enforce_eager",
               "vllm_server_host",
               "vllm_server_port",
               "vllm_server_timeout",
               "vllm_server_pass_dataset",
               "vllm_limit_mm_per_prompt",
               "vllm_max_lora_rank",
               "vllm_disable_custom_all_reduce",
               "sleep_level",
               "offload_model",
               "offload_optimizer",
               "move_model_batches",
               "num_infer_workers",
               "log_rollout_offpolicy_metrics",
               "vllm_server_base_url",
               "vllm_server_group_port",
               "vllm_data_parallel_size",
               "vllm_pipeline_parallel_size",
               "vllm_disable_cascade_attn",
               "vllm_enable_expert_parallel",
               "vllm_engine_kwargs",
               "vllm_max_num_seqs",
               "vllm_mm_processor_cache_gb",
               "vllm_quantization",
               "vllm_reasoning_parser",
               "vllm_speculative_config",
               "vllm_use_async_engine",
               "enable_flattened_weight_sync",
               "ds3_gather_for_generation",
               "completion_length_limit_scope",
               "rollout_importance_sampling_mode",
               "rollout_importance_sampling_threshold",
               "vllm_importance_sampling_correction",
               "vllm_importance_sampling_mode",
               "vllm_importance_sampling_cap"},
              "answers are drawn by the weights that are trained, where they are"),
      ignored({"log_entropy", "wandb_log_unique_prompts", "log_unique_prompts",
               "num_completions_to_print"},
              "entropy is always shown; --log_completions writes every answer"),
      unavailable({"num_generations_eval"}, "held-out prompts get one answer each, the likeliest",
                  {"1"}),
      unavailable({"sync_ref_model", "ref_model_mixup_alpha", "ref_model_sync_steps"},
                  "the reference stays as it is", {},
                  tr("a run from the newer weights has them as its reference")),
      unavailable({"off_policy_sequence_mask_delta", "off_policy_mask_threshold"},
                  "what counts of an answer's probability is bounded by --epsilon and --delta"),
      ignored({"ref_model_type", "ref_model_revision", "reward_model_type", "reward_model_revision",
               "reward_template"},
              "a model's directory says what it is"),
      unavailable({"structured_outputs_regex", "vllm_structured_outputs_regex",
                   "vllm_guided_decoding_regex"},
                  "answers have the form that the policy gives them", {},
                  tr("--reward_funcs rewards a form")),
      unavailable({"async_generate"}, "a step learns from answers of the weights it begins with"),
  };
}

OptionSpec kl_target() {
  OptionSpec spec =
      amount(kLearning, "ppo_target", "",
             "of ppo: behind each rollout kl_coef grows where the distance was above this and "
             "falls where it was below (default: none, in LLaMA-Factory's lines 6)");
  spec.range = above(0);
  spec.may_be_none = true;
  return spec;
}

std::vector<OptionSpec> critic_options() {
  OptionSpec gamma = amount(kLearning, "gamma", "1", "of ppo: what the next token's worth counts");
  gamma.range = at_least(0).up_to(1);
  OptionSpec lambda = amount(kLearning, "lam", "0.95",
                             "of ppo: 0: the critic alone says what an answer is worth, 1: the "
                             "rewards do",
                             {"gae_lambda"});
  lambda.range = at_least(0).up_to(1);
  return {
      {.name = "critic_model",
       .help =
           "of ppo: what the critic begins as (default: the first reward model, else the model)",
       .aliases = {"value_model"},
       .group = kLearning},
      amount(kLearning, "critic_lr", "", "of the critic (default: as --lr)",
             {"critic_learning_rate"}),
      gamma,
      lambda,
      amount(kLearning, "cliprange_value", "0.2",
             "of ppo: how far a value counts from what it was when answers were drawn",
             {"value_clip"}),
      amount(kLearning, "vf_coef", "0.1", "of ppo: weight of the critic's loss"),
      amount(kLearning, "missing_eos_penalty", "0",
             "of ppo: taken from the reward of an answer that was cut at the limit"),
      ignored({"local_rollout_forward_batch_size", "num_sample_generations"},
              "answers are drawn and judged in passes of a size that makes no "
              "difference"),
      {.name = "whiten_rewards",
       .type = OptionType::kBool,
       .default_text = "false",
       .help = "of ppo: rewards of tokens are divided by their deviation in "
               "the rollout",
       .aliases = {"ppo_whiten_rewards"},
       .group = kLearning},
      kl_target(),
      unavailable({"ppo_score_norm"}, "rewards of answers are taken as they are"),
  };
}

}  // namespace

std::vector<OptionSpec> train_reinforcement_options() {
  std::vector<OptionSpec> all;
  for (auto* group : {drawing, reward_options, learning, critic_options}) {
    for (OptionSpec& spec : group()) all.push_back(std::move(spec));
  }
  for (OptionSpec& spec : environment_options(kDrawing)) all.push_back(std::move(spec));
  return all;
}

}  // namespace danlu::cli
