// Megatron's and MindSpeed-LLM's own flags: kernel switches have no meaning here and say so.
#include "cli/commands/train_options.h"

namespace danlu::cli {
std::vector<OptionSpec> train_megatron_options() {
  const std::string group = "Megatron (accepted)";
  const auto accepted = [&](std::string name, std::string why,
                            std::vector<std::string> aliases = {}) {
    return OptionSpec{.name = std::move(name),
                      .type = OptionType::kString,
                      .help = "accepted",
                      .aliases = std::move(aliases),
                      .group = group,
                      .ignored_because = std::move(why)};
  };
  const auto accepted_flag = [&](std::string name, std::string why,
                                 std::vector<std::string> aliases = {}) {
    return OptionSpec{.name = std::move(name),
                      .type = OptionType::kBool,
                      .help = "accepted",
                      .aliases = std::move(aliases),
                      .group = group,
                      .ignored_because = std::move(why)};
  };
  std::vector<OptionSpec> all = train_architecture_options();
  std::vector<OptionSpec> rest = {
      accepted_flag("use_mcore_models", "there is one model implementation",
                    {"no_masked_softmax_fusion",
                     "attention_softmax_in_fp32",
                     "no_gradient_accumulation_fusion",
                     "no_bias_gelu_fusion",
                     "no_bias_swiglu_fusion",
                     "no_bias_dropout_fusion",
                     "use_fused_rmsnorm",
                     "use_fused_swiglu",
                     "use_fused_rotary_pos_emb",
                     "use_fused_ring_attention_update",
                     "use_mc2",
                     "use_ascend_coc",
                     "jit_compile",
                     "accumulate_allreduce_grads_in_fp32",
                     "no_rope_fusion",
                     "use_deter_comp",
                     "apply_query_key_layer_scaling",
                     "use_legacy_models",
                     "manual_gc",
                     "use_fused_mlp",
                     "gemm_gradient_accumulation_fusion",
                     "no_create_attention_mask_in_dataloader",
                     "skip_bias_add",
                     "no_check_for_nan_in_loss_and_grad"}),
      accepted_flag("no_position_embedding",
                    "positions follow from config.json, or from --position_embedding_type"),
      accepted("distributed_executor", "there is one implementation",
               {"manual_gc_interval", "sparse_mode", "shape_order", "output_layer_slice_num"}),
      accepted("ckpt_format", "files say what they are"),
      accepted_flag(
          "square_alibi_mask", "the architecture follows from config.json",
          {"fill_neg_inf", "no_pad_to_seq_lengths", "coc_fused_kernel", "enable_hf2mg_convert"}),
      accepted("tokenizer_padding_side", "sequences lie one behind the other, without padding"),
      {.name = "tokenizer_kwargs",
       .type = OptionType::kList,
       .help = "accepted",
       .group = group,
       .ignored_because = "special tokens follow from the tokenizer's files"},
      accepted_flag("o2_optimizer", "gradients and the optimizer's state are held in fp32",
                    {"o2_gradient"}),
      accepted("swap_optimizer_times", "--offload optimizer keeps the optimizer's state elsewhere"),
      accepted_flag("swap_optimizer", "--offload optimizer keeps the optimizer's state elsewhere"),
      {.name = "spec",
       .type = OptionType::kList,
       .help = "accepted",
       .group = group,
       .ignored_because = "layers follow from config.json"},
      accepted("tokenizer_type", "the tokenizer's files say what it is", {"model_type_hf"}),
      accepted("merge_file", "it is what lies beside --vocab-file"),
      accepted_flag("tokenizer_not_use_fast", "there is one tokenizer implementation",
                    {"no_use_fast"}),
      accepted_flag("load_checkpoint_loosely", "missing or unknown tensors are always errors",
                    {"use_checkpoint_args", "use_checkpoint_opt_param_scheduler",
                     "override_opt_param_scheduler"}),
      accepted_flag("calculate_per_token_loss", "every target token of a step counts alike"),
      accepted_flag("encoder_dp_balance", "ranks share the samples of a step by their tokens"),
      accepted_flag("init_model_with_meta_device", "weights are read where they are kept"),
      accepted_flag("cut_max_seqlen", "--truncation says what becomes of rows that are too long"),
      accepted_flag("is_pairwise_dataset", "rows are read as the objective needs them"),
      accepted_flag("no_post_layer_norm",
                    "a reward head reads what the final norm gives, as in transformers' models"),
      accepted_flag("recompute_in_advance", "layers are run again when their gradient is there"),
      accepted_flag("enable_recompute_layers_per_pp_rank",
                    "layers to recompute are counted in each virtual stage"),
      accepted("dataloader_type", "order is a function of the sample number"),
      accepted_flag("log_params_norm", "the gradient norm is always logged",
                    {"log_timers_to_tensorboard", "log_memory_to_tensorboard",
                     "log_validation_ppl_to_tensorboard", "log_num_zeros_in_grad"}),
      accepted("timing_log_level", "the time of a step is always logged",
               {"timing_log_option", "tensorboard_log_interval", "tensorboard_queue_size"}),
  };
  for (OptionSpec& spec : rest) all.push_back(std::move(spec));
  return all;
}

}  // namespace danlu::cli
