// Flags of ms-swift's infer, HF's generate scripts and MindSpeed-LLM's inference.py that Danlu does
// not have. What cannot change an answer is taken with a notice; what would is refused.
#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "cli/commands/foreign_options.h"
#include "cli/commands/hub_choice.h"
#include "cli/commands/inference_options.h"
#include "cli/commands/train_options.h"

namespace danlu::cli {
namespace {

constexpr const char* kAsDescribed =
    "one process answers with the whole model, as its checkpoint describes it";

/// What scripts of Megatron repeat of a model beside train_megatron_options().
std::vector<OptionSpec> retyped_architecture() {
  return {
      ignored({"make_vocab_size_divisible_by", "transformer_impl",
               "rotary_seq_len_interpolation_factor", "cla_share_factor", "full_attention_interval",
               "mamba_d_conv", "mamba_expand", "linear_key_head_dim", "linear_num_key_heads",
               "linear_num_value_heads", "linear_value_head_dim"},
              kAsDescribed),
      ignored({"num_experts",
               "moe_router_topk",
               "moe_router_load_balancing_type",
               "moe_router_score_function",
               "moe_router_group_topk",
               "moe_router_num_groups",
               "moe_router_topk_scaling_factor",
               "moe_router_dtype",
               "moe_token_dispatcher_type",
               "moe_aux_loss_coeff",
               "moe_device_level_aux_loss_coeff",
               "moe_comm_aux_loss_coeff",
               "moe_layer_freq",
               "moe_intermediate_size",
               "moe_ffn_hidden_size",
               "moe_input_jitter_eps",
               "moe_expert_capacity_factor",
               "n_shared_experts",
               "first_k_dense_replace",
               "topk_group",
               "routed_scaling_factor",
               "n_group"},
              kAsDescribed),
      ignored_switch(
          {"share_kvstates", "norm_topk_prob", "seq_aux", "shared_expert_gate",
           "router_gating_in_fp32", "topk_softmax_in_fp32", "rmsnorm_weight_in_fp32",
           "input_layernorm_in_fp32", "no_enable_linear_qkv", "moe_router_enable_expert_bias",
           "moe_router_pre_softmax", "moe_revert_type_after_topk"},
          kAsDescribed),
      ignored_switch({"moe_grouped_gemm", "moe_permutation_async_comm", "moe_permute_fusion",
                      "moe_alltoall_overlap_comm", "use_fused_moe_token_permute_and_unpermute",
                      "reuse_fp32_param", "use_fused_rmsnorm", "no_shared_storage"},
                     kAsDescribed),
      ignored({"max_tokens_to_oom", "clip_grad", "weight_decay", "lr_warmup_fraction", "adam_beta1",
               "adam_beta2", "lr", "min_lr", "initial_loss_scale"},
              kAsDescribed),
  };
}

/// `specs` as flags that are left alone, in whatever form they come.
std::vector<OptionSpec> left_alone(const std::vector<OptionSpec>& specs, const char* why) {
  std::vector<OptionSpec> taken;
  for (const OptionSpec& spec : specs) {
    std::vector<std::string> names = {spec.name};
    names.insert(names.end(), spec.aliases.begin(), spec.aliases.end());
    const bool is_switch = spec.type == OptionType::kBool;
    taken.push_back(is_switch ? ignored_switch(names, why) : ignored(names, why));
    if (spec.type == OptionType::kList) taken.back().type = OptionType::kList;
  }
  return taken;
}

/// What the checkpoint is, it says itself.
std::vector<OptionSpec> repeated_from_training() {
  return left_alone(
      joined({train_megatron_options(), train_parallel_options(), retyped_architecture()}),
      kAsDescribed);
}

constexpr const char* kOfTraining = "it is for training, and nothing is trained";

/// Whether training refuses the row for its loss, its optimizer, its rows or its figures, which
/// answers have none of. Other refusals stand: what they are about could change an answer.
bool is_about_learning(const std::string& first_name) {
  static const std::set<std::string> rows = {"advantage_reweight",
                                             "async_generate",
                                             "chord_sft_dataset",
                                             "create_new_adapter",
                                             "do_predict",
                                             "enable_high_availability",
                                             "eval_delay",
                                             "galore_optim_per_parameter",
                                             "ignore_data_skip",
                                             "label_smoothing_factor",
                                             "llamapro_num_new_blocks",
                                             "lora_bias",
                                             "cosine_min_lr_ratio",
                                             "off_policy_sequence_mask_delta",
                                             "optim_args",
                                             "ppo_score_norm",
                                             "profile_step_start",
                                             "ref_model_quantization_bit",
                                             "self_cognition_sample",
                                             "seq_kd",
                                             "sync_ref_model",
                                             "teacher_adapters",
                                             "teacher_kl_coef",
                                             "teacher_model_server",
                                             "top_entropy_quantile",
                                             "use_galore",
                                             "use_loss_scale",
                                             "use_swanlab"};
  return rows.contains(first_name);
}

/// How it was made, nobody asks. Not among them: what a user would miss.
std::vector<OptionSpec> of_training() {
  // Lines of LLaMA-Factory and ms-swift that ask have these, too.
  std::vector<OptionSpec> all = {
      ignored_switch(
          {"use_unsloth_gc", "disable_gradient_checkpointing", "print_param_status",
           "ignore_pad_token_for_loss", "is_binary_loss_scale", "disable_ignore_empty_think"},
          kOfTraining),
      ignored({"moe_aux_loss_coef"}, kOfTraining),
      ignored_list({"profile_ranks", "optim_target_modules", "recompute_modules"}, kOfTraining)};
  for (OptionSpec& spec :
       joined({train_model_options(), train_data_options(), train_optimizer_options(),
               train_run_options(), train_preference_options(), train_embedding_options(),
               train_ranking_options(), train_reinforcement_options(), train_expert_options(),
               train_foreign_options()})) {
    if (spec.name == "output_dir") continue;
    if (spec.unavailable_because.empty() || is_about_learning(spec.name)) {
      all.push_back(left_alone({spec}, kOfTraining).front());
    } else {
      all.push_back(std::move(spec));
    }
  }
  for (OptionSpec& spec : all) spec.is_hidden = true;
  return all;
}

/// What lines keep of training that would change what is answered, or whether anything is.
std::vector<OptionSpec> absent_beside_training() {
  return {
      ignored_switch({"do_predict", "predict_with_generate"}, "this command answers"),
      unavailable({"dry_run"}, "only training has a dry run", {},
                  tr("--print_config shows every setting and ends")),
      unavailable({"write_samples"}, "nothing is trained"),
      unavailable({"agent_template"}, "the model's template writes tools", {"none"}),
      unavailable({"vocab_file"}, "tokenizers are named by their directories", {},
                  "--tokenizer DIR"),
      unavailable({"pure_bf16", "fp8", "fp8_format", "fp8_recipe", "fp8_param_gather"},
                  "products are computed in --dtype", {}, "--dtype bf16"),
      unavailable({"environment", "multi_turn_scheduler", "max_turns", "environment_timeout"},
                  "what it answers is not judged here", {},
                  tr("danlu rollout --environment program:COMMAND holds conversations")),
      unavailable({"gym_env", "use_gym_env"}, "no Python is ever run", {"false", "False"},
                  tr("danlu rollout --environment program:COMMAND holds conversations")),
      unavailable({"reward_model_plugin"}, "no Python is ever run"),
      ignored_list({"tokenizer_kwargs"}, "special tokens follow from the tokenizer's files"),
  };
}

/// What would change answers and is not there.
std::vector<OptionSpec> absent_from_answers(const std::vector<OptionSpec>& own) {
  std::vector<OptionSpec> absent = {
      unavailable({"num_return_sequences", "best_of", "num_generations", "n_samples_per_prompt"},
                  "a prompt gets one answer", {"1"}),
      unavailable({"no_repeat_ngram_size", "typical_p", "diversity_penalty", "num_beam_groups"},
                  "--repetition_penalty is what there is"),
      unavailable({"logprobs", "top_logprobs"}, "answers are text"),
      unavailable({"external_plugins", "custom_register_path"}, "no Python is ever run"),
      ignored({"num_labels"}, "the model's files say how many labels there are"),
      unavailable({"resume", "resume_from_checkpoint"}, "a checkpoint is named as a model is",
                  {"auto", "none", "false"}, tr("--model DIR, or --adapters DIR")),
      unavailable({"skip_special_tokens"}, "answers are text", {"true"}),
  };
  const auto has_own = [&](const char* name) {
    return std::any_of(own.begin(), own.end(),
                       [&](const OptionSpec& spec) { return spec.name == name; });
  };
  if (!has_own("use_chat_template")) {
    absent.push_back(unavailable({"use_chat_template"},
                                 "models that have a chat template are asked by it", {"true"}));
  }
  if (!has_own("metric")) {
    absent.push_back(unavailable({"metric"}, "answers are not judged; danlu eval examines models",
                                 {}, tr("danlu infer --metric compares answers with labels")));
  }
  if (!has_own("stop_words")) {
    absent.push_back(
        unavailable({"stop_words", "stop"},
                    "answers end at the tokens that generation_config.json and the template name"));
  }
  if (!has_own("presence_penalty"))
    absent.push_back(unavailable({"presence_penalty", "frequency_penalty"},
                                 "--repetition_penalty is what there is"));
  if (!has_own("reward_funcs")) {
    absent.push_back(unavailable({"reward_funcs", "verifier_function", "reward_model",
                                  "reward_adapters", "reward_model_adapters"},
                                 "answers are not judged; danlu eval examines models", {},
                                 tr("danlu rollout judges answers")));
  }
  if (has_own("max_samples")) {
    absent.push_back(
        unavailable({"max_total_samples"}, "--max_samples takes the first prompts", {"-1"}));
  }
  if (!has_own("reward_tokens")) {
    absent.push_back(unavailable({"task_type", "problem_type", "reward_tokens"},
                                 "models answer here", {"causal_lm"},
                                 tr("danlu infer sorts texts, and judges steps")));
  }
  if (!has_own("tensor_parallel_size")) {
    absent.push_back(
        ignored({"vllm_tensor_parallel_size", "sglang_tp_size", "lmdeploy_tp"}, kAsDescribed));
  }
  if (has_own("mm_model")) {
    absent.push_back(ignored({"mm_data", "mm_tool"}, "they are for training"));
  } else {
    for (OptionSpec& spec : multimodal_options()) absent.push_back(std::move(spec));
  }
  return absent;
}

}  // namespace

std::vector<OptionSpec> foreign_inference_options(const std::vector<OptionSpec>& own) {
  std::vector<OptionSpec> foreign = {
      ignored({"infer_backend", "sft_type", "train_type", "tuner_type", "attn_impl", "flash_attn",
               "vllm_gpu_memory_utilization", "gpu_memory_utilization", "vllm_limit_mm_per_prompt",
               "sglang_mem_fraction_static", "lmdeploy_vision_batch_size", "write_batch_size",
               "experts_impl"},
              "there is one engine, and files say what they are"),
      ignored_switch({"use_kv_cache", "use_flash_attn", "use_cache"},
                     "the KV cache is always used; there is one engine"),
      ignored_switch({"trust_remote_code", "use_fast_tokenizer"}, "no code of a model is ever run"),
      ignored({"micro_batch_size", "global_batch_size", "lora_r", "lora_rank"},
              "requests set the batch, an adapter's files its shape"),
      {.name = "lora_target_modules",
       .type = OptionType::kList,
       .help = "accepted",
       .aliases = {"lora_modules_to_save"},
       .group = "Other systems",
       .ignored_because = "an adapter's files say where it sits"},
      ignored_switch({"lora_fusion", "lora_register_forward_hook", "lora_ckpt_filter"},
                     "an adapter's files say where it sits"),
      ignored({"dataset_seed", "dataset_test_ratio", "truncation", "truncation_strategy"},
              "every row of the data set is asked, whole"),
      ignored_switch({"exit_on_missing_checkpoint"}, "a missing checkpoint is always an error"),
      ignored_switch({"no_load_optim", "no_load_rng", "no_save_optim", "no_save_rng", "finetune",
                      "is_instruction_dataset", "variable_seq_lengths"},
                     "weights alone are loaded"),
      ignored_switch({"merge_lora", "safe_serialization", "show_dataset_sample", "verbose",
                      "check_model_is_latest"},
                     "adapters are applied as they are; danlu merge writes merged models"),
      hub_choice_option("Other systems"),
      ignored({"make_vocab_size_divisible_by", "transformer_impl"},
              "a checkpoint's files say how its vocabulary is padded and its modules are called"),
      ignored({"load_args_from_ckpt_dir", "load_args"},
              "what a run recorded is read, and flags outweigh it"),
      ignored({"log_interval", "save_interval", "eval_interval", "eval_iters"},
              "nothing is trained"),
  };
  std::set<std::string> known = names_of(own);
  return without_names(
      joined({std::move(foreign), absent_from_answers(own), foreign_engine_options(),
              absent_beside_training(), repeated_from_training(), of_training()}),
      known);
}

}  // namespace danlu::cli
