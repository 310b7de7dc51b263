// Flags of HF's Trainer, ms-swift, LLaMA-Factory and MindSpeed-LLM that Danlu does not have. What
// cannot change a result is taken with a notice; what would change it is refused when switched on.
#include "cli/commands/foreign_options.h"
#include "cli/commands/train_options.h"

namespace danlu::cli {
namespace {

std::vector<OptionSpec> without_effect() {
  return {
      ignored_switch({"pure_bf16"},
                     "weights are bf16 (--dtype), and are updated from fp32 masters all the same"),
      ignored_switch({"tf32", "bf16_full_eval", "fp16_full_eval"},
                     "every number is computed in the type that --dtype names"),
      ignored({"lora_dtype", "half_precision_backend", "fp16_opt_level"},
              "adapters are computed in --dtype and updated in fp32"),
      ignored_switch({"use_fast_tokenizer", "use_fast"},
                     "there is one tokenizer, with the ids of the model's own"),
      ignored({"gradient_checkpointing_kwargs"}, "there is one way to recompute"),
      ignored_switch({"use_reentrant_gc", "vit_gradient_checkpointing"},
                     "there is one way to recompute"),
      ignored_switch({"ignore_args_error"}, "unknown flags are always errors: nothing gets lost"),
      ignored_switch({"remove_unused_columns", "mmap_bin_files"},
                     "rows are read once, into a cache of tokens"),
      ignored({"buffer_size", "preprocessing_batch_size", "shuffle_buffer_size"},
              "rows are streamed into a cache of tokens once"),
      ignored_switch({"dataloader_pin_memory", "dataloader_persistent_workers"},
                     "batches are prepared ahead in this process"),
      ignored({"dataloader_prefetch_factor", "accelerator_config"},
              "batches are prepared ahead in this process"),
      ignored_switch({"save_safetensors", "safe_serialization", "save_on_each_node"},
                     "weights are always saved as safetensors"),
      ignored({"max_shard_size", "eval_accumulation_steps", "torch_empty_cache_steps"},
              "memory is used piece by piece"),
      ignored_switch(
          {"torch_compile", "use_liger", "use_liger_kernel", "enable_liger_kernel", "use_unsloth",
           "jit_mode_eval", "use_ipex", "use_logits_to_keep", "full_determinism", "deterministic"},
          "there is one set of kernels, and it is deterministic on the CPU"),
      ignored({"torch_compile_backend", "torch_compile_mode", "tuner_backend", "template_backend",
               "experts_impl"},
              "there is one implementation"),
      ignored_switch({"auto_find_batch_size"}, "the batch size is the one that is given"),
      ignored_switch({"prediction_loss_only", "eval_do_concat_batches",
                      "include_inputs_for_metrics", "batch_eval_metrics"},
                     "evaluation is the loss"),
      ignored(
          {"acc_strategy", "num_beams", "eval_num_beams", "include_for_metrics",
           "generation_max_length", "generation_num_beams", "generation_config", "length_penalty"},
          "evaluation is the loss"),
      ignored_switch({"eval_use_gather_object", "skip_special_tokens"}, "evaluation is the loss"),
      ignored({"infer_backend", "infer_dtype", "offload_folder"}, "nothing is answered here"),
      ignored_switch({"use_kv_cache"}, "nothing is answered here"),
      ignored({"device_map", "max_memory"}, "--device says where the model is"),
      ignored_switch({"upcast_layernorm", "upcast_lmhead_output"},
                     "norms and the loss are computed in fp32"),
      ignored({"swanlab_project", "swanlab_workspace", "swanlab_exp_name", "swanlab_run_name",
               "swanlab_mode", "swanlab_token", "swanlab_api_key", "swanlab_logdir",
               "swanlab_notification_method", "swanlab_lark_webhook_url", "swanlab_lark_secret",
               "wandb_project", "wandb_save_dir", "project", "trackio_space_id"},
              "figures go to TensorBoard files and logging.jsonl; nothing is sent anywhere"),
      ignored_switch({"use_swanlab", "use_wandb"},
                     "figures go to TensorBoard files and logging.jsonl; nothing is sent anywhere"),
      ignored_switch({"compute_accuracy"},
                     "the accuracy of tokens is among the figures of danlu sft and pretrain"),
      ignored_switch({"create_checkpoint_symlink"},
                     "a run's directory always has links called best and last"),
      ignored_switch({"gc_collect_after_offload", "low_cpu_mem_usage"},
                     "memory is freed where it is last used"),
      ignored_switch({"use_unsloth_gc"}, "there is one way to recompute"),
      ignored_switch({"print_param_status", "include_effective_tokens_per_second"},
                     "parameters, speed and memory are always said"),
      ignored_switch({"data_shared_file_system"},
                     "machines find out whether they share their cache"),
      ignored_switch({"ignore_pad_token_for_loss"}, "batches hold no padding here"),
      ignored_switch({"average_tokens_across_devices"}, "the targets of all processes count alike"),
      ignored_switch({"restore_callback_states_from_checkpoint"}, "there are no callbacks"),
      ignored({"liger_kernel_config", "torchdynamo", "mp_parameters", "debug", "ray_scope"},
              "there is one implementation"),
      ignored({"badam_update_ratio", "badam_mask_mode", "badam_verbose", "oft_rank",
               "oft_block_size", "oft_target"},
              "it is of a method that is refused where it is switched on"),
      ignored_switch({"galore_layerwise", "apollo_layerwise", "galore_optim_per_parameter"},
                     "gradients of a step are summed, clipped and then used, layer by layer"),
      ignored_switch({"galore_proj_quant"},
                     "it is of a method that is refused where it is "
                     "switched on"),
      ignored({"galore_proj_bits", "galore_proj_group_size", "galore_cos_threshold",
               "galore_gamma_proj", "galore_queue_size"},
              "it is of a method that is refused where it is switched on"),
  };
}

/// Switches of Megatron's kernels under the names that ms-swift has for them.
std::vector<OptionSpec> megatron_by_swift() {
  return {
      ignored_switch({"cross_entropy_loss_fusion", "gradient_accumulation_fusion",
                      "masked_softmax_fusion", "bias_activation_fusion", "bias_dropout_fusion",
                      "apply_rope_fusion", "linear_decoupled_in_proj", "use_v1_kernels"},
                     "there is one set of kernels, and it is deterministic on the CPU"),
      ignored({"cross_entropy_fusion_impl", "attention_backend"},
              "there is one set of kernels, and it is deterministic on the CPU"),
      ignored_switch({"use_precision_aware_optimizer"},
                     "gradients and the optimizer's state are held in fp32"),
      ignored({"exp_avg_dtype", "exp_avg_sq_dtype", "main_grads_dtype", "main_params_dtype"},
              "gradients and the optimizer's state are held in fp32"),
      ignored_switch({"offload_bridge"}, "weights are written a tensor at a time"),
      ignored_switch({"load_safetensors"}, "the model's directory is read as it is"),
      ignored({"label_names"}, "evaluation is the loss"),
      ignored_switch({"add_non_thinking_prefix"},
                     "the template writes the empty thoughts of answers without any"),
      unavailable({"recompute_modules"},
                  "--recompute selective runs attention again; --recompute_norm and "
                  "--recompute_activation_function do the rest",
                  {"core_attn"}),
      unavailable({"fp8_recipe", "fp8_param_gather"},
                  "weights are trained with fp32 masters: --dtype bf16"),
  };
}

/// What ms-swift trains beside models that answer.
std::vector<OptionSpec> other_tasks() {
  return {
      ignored({"teacher_deepspeed", "teacher_model_type", "teacher_model_revision"},
              "a teacher is opened and shared as the model is"),
      ignored_switch({"offload_teacher_model"}, "a teacher is where the model is"),
      unavailable({"teacher_model_server", "teacher_tag_key"}, "a teacher is a model here", {},
                  tr("--teacher_model DIR names it")),
      unavailable({"teacher_adapters"}, "a teacher is a whole model", {},
                  tr("danlu merge joins adapters with their model")),
      unavailable(
          {"seq_kd"}, "answers of the teacher are rows like others", {},
          tr("danlu infer --model TEACHER --val_dataset FILE --result_path ROWS writes them, "
             "for --dataset ROWS --lmbda 0")),
      unavailable(
          {"teacher_kl_coef", "advantage_reweight", "rlsd_lambda", "rlsd_reweight_clip_range",
           "rlsd_lambda_warmup_steps", "rlsd_lambda_decay_steps", "rlsd_negative_only",
           "sdar_loss_coef", "sdar_gate_beta"},
          "rewards come from no teacher here", {},
          tr("--rlhf_type gkd --lmbda 1 learns a teacher's distributions over answers of the "
             "model's own")),
      unavailable({"chord_sft_dataset", "chord_sft_per_device_train_batch_size", "chord_mu_peak",
                   "chord_mu_valley", "chord_mu_warmup_steps", "chord_mu_decay_steps",
                   "chord_enable_phi_function"},
                  "rewards and rows are not mixed in one loss"),
      unavailable({"reward_model_plugin", "use_kt"}, "no Python is ever run"),
      unavailable({"gym_env", "use_gym_env"}, "no Python is ever run", {"false", "False"},
                  tr("--environment program:COMMAND is an environment of your own in any language: "
                     "its \"reward\" is the reward environment of --reward_funcs")),
      unavailable({"loss_weights", "reference_free", "pref_bco_weight"},
                  "this version has no such loss"),
      // With the values that stand there where nothing is said these change nothing.
      unavailable({"top_entropy_quantile"}, "this version has no such loss", {"1", "1.0"}),
      unavailable({"ld_alpha"}, "this version has no such loss", {"1", "1.0"}),
      unavailable({"f_divergence_type"}, "this version has no such loss", {"reverse_kl"}),
      unavailable({"router_replay_mode"}, "experts are chosen anew in each pass", {"disabled"}),
      // Flags of losses that are refused by their names.
      ignored({"fipo_decay_rate", "fipo_clip_range", "fipo_clip_high_only", "fipo_safety_threshold",
               "real_tau", "discopop_tau", "f_alpha_divergence_coef"},
              "this version has no such loss"),
      unavailable({"galore_quantization"}, "the optimizer's state is fp32", {},
                  tr("--optim galore without it")),
      unavailable({"llamapro_num_new_blocks", "reft_intervention_type", "lora_ga_batch_size",
                   "lora_ga_iters", "lora_ga_max_length", "lora_ga_direction", "lora_ga_scale",
                   "lora_ga_stable_gamma"},
                  "adapters are LoRA's, rsLoRA's and DoRA's"),
      ignored_switch({"use_ray"}, "danlu launch starts the processes"),
      ignored({"ray_num_workers", "ray_run_name", "resources_per_worker", "placement_strategy",
               "ray_storage_path", "device_groups"},
              "danlu launch starts the processes"),
  };
}

std::vector<OptionSpec> model_and_tuner() {
  return {
      unavailable({"new_special_tokens_config", "split_special_tokens"},
                  "new tokens begin as the mean of the others: --new_special_tokens"),
      unavailable({"add_bos_token", "add_eos_token"},
                  "special tokens follow from the tokenizer's files and the template", {"none"}),
      unavailable({"config_overrides"}, "models follow from their config.json; change it there"),
      unavailable({"lora_bias", "lora_bias_trainable"}, "adapters have no biases"),
      ignored_switch({"pissa_convert"},
                     "adapters that begin with a part of their base are always saved as plain ones "
                     "of twice the rank"),
      ignored({"loraplus_lr_embedding"}, "embeddings carry no adapters"),
      unavailable({"create_new_adapter"}, "one adapter is trained at a time"),
      unavailable({"adapter_folder"}, "an adapter is named by its directory", {}, "--adapters DIR"),
      unavailable({"shift_attn"}, "attention is as the model has it"),
      ignored_switch({"use_mca", "export_hf_on_finish"},
                     "there is one trainer, which reads and writes Hugging Face's files"),
      unavailable({"use_hyper_parallel"}, "there is one trainer"),
      unavailable({"mixed_precision"}, "the type that is computed in has a flag of its own",
                  {"bf16_mixed"}, "--dtype"),
      unavailable({"megatron_pretrained_checkpoint"}, "a model is named as others are", {},
                  "--model DIR"),
      unavailable({"extra_config"}, "what stands in it are flags of their own here", {"{}"}),
      unavailable({"use_packed_sequences"}, "samples share passes by --packing"),
      unavailable({"use_cpu", "no_cuda"}, "devices have names here", {}, "--device cpu"),
      unavailable({"parallelism_config"}, "the axes have flags of their own", {},
                  "--tp --pp --cp --ep"),
      unavailable({"past_index"}, "models keep nothing from one pass to the next", {"-1"}),
      unavailable({"badam_mode"}, "whole layers take turns", {"layer"}),
      unavailable({"muon_scalar_optimizer"}, "what Muon leaves is updated by AdamW", {"adam"}),
      unavailable({"muon_split_qkv"}, "matrices are those of Hugging Face's files", {"true"}),
      unavailable({"muon_no_split_qkv"}, "matrices are those of Hugging Face's files"),
      unavailable({"muon_tp_mode"},
                  "whole matrices are orthogonalised, however they are cut: then the split changes "
                  "no number",
                  {"duplicated", "distributed"}, tr("--muon_tp_mode duplicated, or leave it out")),
      ignored({"muon_fp32_matmul_prec"}, "the iteration is computed in fp32"),
      ignored_switch({"muon_use_syrk"}, "there is one set of kernels"),
      unavailable({"cosine_min_lr_ratio"},
                  "the shape has flags of its own: --min_lr, --lr_num_cycles, --lr_power, …"),
      unavailable({"fp8", "fp8_format"}, "weights are trained with fp32 masters: --dtype bf16"),
      unavailable({"load_in_8bit"}, "base weights are held in 4 bits: --quantization_bit 4"),
      ignored({"bnb_4bit_comp_dtype", "bnb_4bit_compute_dtype", "bnb_4bit_quant_storage"},
              "products are computed in --dtype"),
      unavailable({"external_plugins", "custom_register_path"}, "no Python is ever run", {},
                  tr("\"program:COMMAND\" among --reward_funcs is a reward of your own in any "
                     "language; --columns and --dataset_dir say what rows are")),
      unavailable({"tp_2d"}, "the architecture follows from config.json"),
      unavailable({"share_kvstates", "cla_share_factor"},
                  "no model family of this version shares keys and values between layers"),
  };
}

std::vector<OptionSpec> data_and_run() {
  return {
      unavailable({"self_cognition_sample"},
                  "no self-cognition rows are mixed in by themselves; name them in --dataset, "
                  "--model_name and --model_author are put into them"),
      unavailable({"preserve_thinking"}, "the template says which thoughts of earlier rounds stay"),
      unavailable({"eval_on_each_dataset"}, "held-out rows are measured together"),
      unavailable({"enable_torch_profiler"}, "profiling is not in this version"),
      unavailable({"split_batches"}, "a batch size is of one process"),
      unavailable({"sortish_sampler"}, "the order of rows is drawn by --data_seed"),
      unavailable({"response_prefix"}, "the template renders rows as they are", {"none"}),
      ignored({"history_turns"}, "it is of chats: danlu chat and danlu infer have it"),
      unavailable({"trim_long_prompts"}, "--truncation says what becomes of long rows", {},
                  tr("left cuts prompts at their beginning, right cuts answers at their end, "
                     "delete leaves such rows out")),
      unavailable({"use_loss_scale"}, "--loss_scale names what is learnt"),
      unavailable({"interleave_prob", "interleave_probs", "train_dataset_mix_ratio"},
                  "data sets are joined; path#n takes n rows of one"),
      unavailable({"mix_strategy"}, "data sets are joined; path#n takes n rows of one", {"concat"}),
      unavailable({"packing_length"}, "packs hold --max_length tokens"),
      unavailable({"packing_strategy"}, "packs are filled with the samples that fit best",
                  {"binpack"}),
      unavailable({"stopping_strategy"}, "data sets are joined; path#n takes n rows of one",
                  {"first_exhausted"}),
      unavailable({"val_dataset_shuffle"}, "validation rows keep their order"),
      unavailable({"disable_auto_column_mapping"}, "columns are read by their usual names", {},
                  tr("--columns renames them")),
      unavailable({"download_mode"}, "files that are there are not fetched again",
                  {"reuse_dataset_if_exists"}, "danlu download --dataset NAME"),
      unavailable({"data_sharding"}, "all processes draw from all rows"),
      unavailable({"ignore_data_skip"}, "a resumed run goes on at the very next sample"),
      unavailable({"label_smoothing_factor"}, "the loss is cross entropy"),
      unavailable({"eval_on_start", "eval_use_evalscope"},
                  "training measures the loss; danlu infer answers data sets afterwards"),
      ignored({"eval_limit", "eval_dataset_args", "eval_generation_config", "extra_eval_args"},
              "it is of eval_use_evalscope, which is refused where it is switched on"),
      unavailable({"eval_metric"}, "evaluation is the loss and the accuracy of tokens", {"acc"}),
      unavailable({"early_stopping_threshold"}, "any better loss counts", {"0", "0.0"}),
      unavailable({"callbacks"}, "no Python is ever run",
                  {"early_stop", "print", "default_flow", "tensorboard"},
                  tr("--early_stop_interval N ends a run that gets no better; speed and memory are "
                     "always said")),
      unavailable({"eval_delay"}, "evaluation keeps to --eval_steps"),
      unavailable(
          {"profile_step_start", "profile_step_end", "profile_level", "profile_ranks",
           "profile_with_cpu", "profile_with_stack", "profile_with_memory", "profile_record_shapes",
           "profile_save_path", "profile_export_type", "profile_data_simplification"},
          "profiling is not in this version"),
      unavailable({"enable_high_availability", "elastic"},
                  "a run that lost a process goes on from its last checkpoint", {},
                  tr("danlu launch --max_restarts N begins it again, with --min_ranks on fewer "
                     "processes")),
  };
}

}  // namespace

std::vector<OptionSpec> train_foreign_options() {
  std::vector<OptionSpec> all = without_effect();
  for (std::vector<OptionSpec> part : {megatron_by_swift(), other_tasks(), model_and_tuner(),
                                       data_and_run(), reinforcement_options()}) {
    for (OptionSpec& spec : part) all.push_back(std::move(spec));
  }
  return all;
}

}  // namespace danlu::cli
