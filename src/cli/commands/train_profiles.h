// cli/commands/train_profiles.h: what other training systems take where a command line is silent,
// and by which flags their lines are known; as data. docs/profiles.md shows them side by side.
// Sources: Megatron-LM core 0.8 and MindSpeed-LLM 2.0 (arguments.py), ms-swift 2.4.2
// (argument.py), ms-swift 3 and 4 (their pages of command line parameters), Hugging Face's
// TrainingArguments with Stanford Alpaca's train.py, LLaMA-Factory's hparams.
#pragma once
#include <string>
#include <vector>

#include "base/option_profiles.h"

namespace danlu::cli {

/// Megatron's flags for the split, for kernels and for the retyped architecture: nobody types them
/// but for Megatron's sake. --train-iters and the like are not among them: they have a meaning here
/// that a Danlu user may want.
inline OptionProfile mindspeed_profile() {
  return {.name = "mindspeed",
          .system = "MindSpeed-LLM and Megatron-LM",
          .values = {{"lora_rank", "16"},
                     {"lora_alpha", "32"},
                     {"lora_dropout", "0"},
                     {"split", "969,30,1"},
                     {"truncation", "shares"},
                     {"loss_average", "micro_batches"},
                     {"accum", "1"},
                     {"lr_scheduler", "linear"},
                     {"wsd_decay_style", "exponential"},
                     {"min_lr", "0"},
                     {"warmup_ratio", "0"},
                     {"weight_decay", "0.01"},
                     {"adam_beta1", "0.9"},
                     {"adam_beta2", "0.999"},
                     {"adam_epsilon", "1e-8"},
                     {"muon_nesterov", "false"},
                     {"muon_coefficient_type", "quintic"},
                     {"muon_extra_scale_factor", "1"},
                     {"max_grad_norm", "1.0"},
                     {"mtp_loss_scaling_factor", "0.3"},
                     {"mtp_after_norm", "false"},
                     {"initial_loss_scale", "4294967296"},
                     {"loss_scale_window", "1000"},
                     {"hysteresis", "2"},
                     {"min_loss_scale", "1"},
                     {"dtype", "fp32"},
                     {"recompute", "none"},
                     {"seed", "1234"},
                     {"eval_steps", "1000"},
                     {"eval_iters", "100"},
                     {"save_total_limit", "0"},
                     {"logging_steps", "100"},
                     {"simpo_beta", "2.5"},
                     {"gamma_beta_ratio", "1.4"},
                     {"max_completion_length", "= stage == trl_ppo ? 128 : 512"},
                     {"top_p", "= stage == trl_ppo ? 0.95 : 1"},
                     {"top_k", "= stage == trl_ppo ? 50 : 0"}},
          .marks = {{"tensor_model_parallel_size"},
                    {"pipeline_model_parallel_size"},
                    {"num_layers_per_virtual_pipeline_stage"},
                    {"use_distributed_optimizer"},
                    {"use_mcore_models"},
                    {"use_legacy_models"},
                    {"transformer_impl"},
                    {"tokenizer_type"},
                    {"make_vocab_size_divisible_by"},
                    {"init_method_std"},
                    {"num_layers"},
                    {"ffn_hidden_size"},
                    {"num_attention_heads"},
                    {"group_query_attention"},
                    {"position_embedding_type"},
                    {"normalization"},
                    {"swiglu"},
                    {"untie_embeddings_and_output_weights"},
                    {"disable_bias_linear"},
                    {"no_masked_softmax_fusion"},
                    {"attention_softmax_in_fp32"},
                    {"no_gradient_accumulation_fusion"},
                    {"use_fused_rmsnorm"},
                    {"use_fused_swiglu"},
                    {"use_fused_rotary_pos_emb"},
                    {"is_instruction_dataset"}},
          .yields_to = {"megatron-swift", "llamafactory"}};
}

inline OptionProfile swift24_profile() {
  return {.name = "swift24",
          .system = "ms-swift 2.4",
          .values = {{"tuner", "lora"},
                     {"max_length", "2048"},
                     {"truncation", "delete"},
                     {"val_ratio", "0.01"},
                     {"lora_rank", "8"},
                     {"lora_alpha", "32"},
                     {"lora_dropout", "0.05"},
                     {"lora_target", "DEFAULT"},
                     {"adam_beta1", "0.9"},
                     {"adam_beta2", "0.95"},
                     {"weight_decay", "0.1"},
                     {"max_grad_norm", "1.0"},
                     {"loss_scale_window", "2000"},
                     {"hysteresis", "1"},
                     {"lr_scheduler", "cosine"},
                     {"warmup_ratio", "0.05"},
                     {"batch_size", "1"},
                     {"epochs", "1"},
                     {"recompute", "full"},
                     {"eval_steps", "= tuner == full ? 200 : 50"},
                     {"save_steps", "= eval_steps"},
                     {"save_total_limit", "2"},
                     {"logging_steps", "5"},
                     {"seed", "42"},
                     {"packing", "false"},
                     {"version_dir", "true"},
                     {"cpo_alpha", "1"},
                     {"rpo_alpha", "1"},
                     {"temperature", "0.9"}},
          .marks = {{"sft_type"},
                    {"model_type", "model"},  // beside --model it is ms-swift 3's
                    {"model_id_or_path"},
                    {"custom_train_dataset_path"},
                    {"custom_val_dataset_path"},
                    {"template_type"},
                    {"train_dataset_sample"},
                    {"dataset_test_ratio"},
                    {"check_dataset_strategy"},
                    {"preprocess_num_proc"},
                    {"lora_dropout_p"},
                    {"add_output_dir_suffix"},
                    {"check_model_is_latest"},
                    {"push_hub_strategy"}}};
}

/// ms-swift 3 and 4. Samples may be as long as the model's window, of which no profile's length is
/// more. Version 3 drew answers from likely tokens; --train_type is its word for --tuner_type.
inline OptionProfile swift3_profile() {
  return {.name = "swift3",
          .system = "ms-swift 3 and 4",
          .values = {{"tuner", "lora"},
                     {"max_length", "1048576"},
                     {"truncation", "= rlhf_type == grpo ? left : delete"},
                     {"val_ratio", "0"},
                     {"lora_rank", "8"},
                     {"lora_alpha", "32"},
                     {"lora_dropout", "0.05"},
                     {"lora_target", "all-linear"},
                     {"adam_beta1", "0.9"},
                     {"adam_beta2", "0.95"},
                     {"weight_decay", "0.1"},
                     {"max_grad_norm", "1.0"},
                     {"loss_scale_window", "2000"},
                     {"hysteresis", "1"},
                     {"lr_scheduler", "cosine"},
                     {"warmup_ratio", "0"},
                     {"batch_size", "1"},
                     {"epochs", "3"},
                     {"recompute", "full"},
                     {"save_steps", "500"},
                     {"save_total_limit", "0"},
                     {"logging_steps", "5"},
                     {"seed", "42"},
                     {"data_seed", "42"},
                     {"packing", "false"},
                     {"version_dir", "true"},
                     {"cpo_alpha", "1"},
                     {"temperature", "0.9"},
                     {"top_p", "1"},
                     {"top_k", "0"}},
          .values_beside = {{"train_type",
                             {{"top_p", "= rlhf_type == ppo ? 1 : 0.9"},
                              {"top_k", "= rlhf_type == ppo ? 0 : 50"}}}},
          .marks = {{"train_type"},
                    {"tuner_type"},
                    {"split_dataset_ratio"},
                    {"quant_bits"},
                    {"add_version"},
                    {"check_model"}},
          .yields_to = {"megatron-swift", "mindspeed"}};
}

/// Flags of ms-swift's that say it is Megatron-SWIFT's line where a flag of Megatron's stands
/// beside them: each alone may be somebody else's.
inline std::vector<ProfileMark> megatron_swift_marks() {
  std::vector<std::string> of_megatron = {"context_parallel_size",
                                          "expert_model_parallel_size",
                                          "expert_tensor_parallel_size",
                                          "recompute_granularity",
                                          "no_save_optim",
                                          "no_save_rng",
                                          "cross_entropy_loss_fusion"};
  for (const ProfileMark& mark : mindspeed_profile().marks) of_megatron.push_back(mark.name);
  std::vector<ProfileMark> marks;
  for (const char* name : {"rlhf_type", "save_safetensors", "load_safetensors", "merge_lora",
                           "padding_free", "load_from_cache_file", "dataset_num_proc"})
    marks.push_back({.name = name, .beside = of_megatron});
  for (const ProfileMark& mark : swift3_profile().marks)
    marks.push_back({.name = mark.name, .beside = of_megatron});
  return marks;
}

/// `megatron sft|pt|rlhf` of ms-swift 3 and 4. The samples of a micro-batch share a pass there
/// (padding_free), and no more than those.
inline OptionProfile megatron_swift_profile() {
  return {.name = "megatron-swift",
          .system = "Megatron-SWIFT (ms-swift 3 and 4)",
          .values = {{"tuner", "full"},
                     {"max_length", "1048576"},
                     {"truncation", "= rlhf_type == grpo ? left : delete"},
                     {"packing", "false"},
                     {"val_ratio", "0"},
                     {"lora_rank", "8"},
                     {"lora_alpha", "32"},
                     {"lora_dropout", "0.05"},
                     {"lora_target", "all-linear"},
                     {"adam_beta1", "0.9"},
                     {"adam_beta2", "0.95"},
                     {"adam_epsilon", "1e-8"},
                     {"muon_momentum", "0.9"},
                     {"muon_nesterov", "false"},
                     {"muon_coefficient_type", "quintic"},
                     {"muon_extra_scale_factor", "1"},
                     {"weight_decay", "0.1"},
                     {"max_grad_norm", "1.0"},
                     {"lr_scheduler", "cosine"},
                     {"min_lr", "0"},
                     {"warmup_ratio", "0"},
                     {"wsd_decay_style", "exponential"},
                     {"batch_size", "1"},
                     {"initial_loss_scale", "4294967296"},
                     {"loss_scale_window", "1000"},
                     {"hysteresis", "2"},
                     {"min_loss_scale", "1"},
                     {"recompute", "selective"},
                     {"save_steps", "500"},
                     {"save_total_limit", "0"},
                     {"logging_steps", "5"},
                     {"seed", "42"},
                     {"data_seed", "42"},
                     {"version_dir", "true"},
                     {"temperature", "0.9"}},
          .marks = megatron_swift_marks()};
}

/// The defaults of stanford_alpaca's train.py, and of the TrainingArguments that it inherits.
inline OptionProfile alpaca_profile() {
  return {.name = "alpaca",
          .system = "Stanford Alpaca's train.py (HF Trainer)",
          .values = {{"tuner", "full"},        {"template", "stanford_alpaca"},
                     {"max_length", "512"},    {"truncation", "right"},
                     {"val_ratio", "0"},       {"epochs", "3"},
                     {"batch_size", "8"},      {"eval_batch_size", "8"},
                     {"accum", "1"},           {"lr", "5e-5"},
                     {"weight_decay", "0"},    {"adam_beta1", "0.9"},
                     {"adam_beta2", "0.999"},  {"adam_epsilon", "1e-8"},
                     {"max_grad_norm", "1.0"}, {"lr_scheduler", "linear"},
                     {"warmup_ratio", "0"},    {"logging_steps", "500"},
                     {"eval_strategy", "no"},  {"eval_steps", "= logging_steps"},
                     {"save_steps", "500"},    {"save_total_limit", "0"},
                     {"seed", "42"},           {"packing", "false"},
                     {"dtype", "fp32"},        {"recompute", "none"},
                     {"version_dir", "false"}, {"loss_scale_window", "2000"},
                     {"hysteresis", "1"}}};
}

inline OptionProfile llamafactory_profile() {
  return {
      .name = "llamafactory",
      .system = "LLaMA-Factory",
      .values = {{"tuner", "lora"},
                 {"max_length", "2048"},
                 {"truncation", "shares"},
                 {"val_ratio", "0"},
                 {"lora_rank", "8"},
                 {"lora_alpha", "= 2 * lora_rank"},
                 {"lora_dropout", "0"},
                 {"lora_target", "all-linear"},
                 {"lr", "5e-5"},
                 {"weight_decay", "0"},
                 {"adam_beta1", "0.9"},
                 {"adam_beta2", "0.999"},
                 {"adam_epsilon", "1e-8"},
                 {"max_grad_norm", "1.0"},
                 {"loss_scale_window", "2000"},
                 {"hysteresis", "1"},
                 {"lr_scheduler", "linear"},
                 {"warmup_ratio", "0"},
                 {"batch_size", "8"},
                 {"eval_batch_size", "8"},
                 {"accum", "1"},
                 {"epochs", "3"},
                 {"logging_steps", "500"},
                 {"eval_strategy", "no"},
                 {"eval_steps", "= logging_steps"},
                 {"save_steps", "500"},
                 {"save_total_limit", "0"},
                 {"seed", "42"},
                 {"packing", "false"},
                 {"recompute", "full"},
                 {"version_dir", "false"},
                 {"pre_resize", "llamafactory"},
                 {"galore_rank", "16"},
                 {"galore_update_interval", "200"},
                 {"galore_scale", "2"},
                 {"simpo_beta", "0.1"},
                 {"simpo_gamma", "0.5"},
                 {"temperature", "0.95"},
                 {"top_p", "0.7"},
                 {"top_k", "50"},
                 {"max_completion_length", "1024"},
                 {"kl_beta", "= stage == ppo ? 0.2 : 0.04"},
                 {"ppo_target", "6"}},
      .marks = {{"finetuning_type"},
                {"neat_packing"},
                {"pref_beta"},
                {"pref_loss"},
                {"cutoff_len"},
                // Danlu's own names too.
                {.name = "mask_history", .beside = {"stage"}},
                {.name = "train_on_prompt", .beside = {"stage"}},
                {"preprocessing_num_workers"},
                {"additional_target"},
                {"freeze_trainable_layers"},
                {"freeze_trainable_modules"},
                {"freeze_vision_tower"},
                {"disable_gradient_checkpointing"},
                {"pure_bf16"},
                {"upcast_layernorm"}},
  };
}

/// The profiles of a training verb.
inline std::vector<OptionProfile> train_profiles(const std::string& verb) {
  std::vector<OptionProfile> all = {{.name = "danlu", .system = "Danlu"},
                                    mindspeed_profile(),
                                    swift24_profile(),
                                    swift3_profile(),
                                    megatron_swift_profile(),
                                    alpaca_profile(),
                                    llamafactory_profile()};
  for (OptionProfile& profile : all) {
    if (verb == "posttrain" && profile.name == "mindspeed") profile.of_command = true;
    if (verb == "posttrain" && profile.name == "megatron-swift") profile.marks.clear();
    // Most of what rlhf trains, and --model, is ms-swift 3's.
    if (verb == "rlhf" && profile.name == "swift3") profile.of_command = true;
    if (verb != "train") continue;
    if (profile.name == "alpaca") {
      profile.of_command = true;
      profile.unless_given = "stage";
    }
    // What has a stage and nobody's mark: the one before takes lines without a stage.
    if (profile.name == "llamafactory") profile.of_command = true;
  }
  return all;
}

}  // namespace danlu::cli
