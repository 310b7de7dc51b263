// Megatron's and MindSpeed-LLM's own flags: the retyped architecture is compared with config.json;
// kernel switches have no meaning here and say so.
#include "cli/commands/train_options.h"

namespace danlu::cli {
namespace {

std::vector<OptionSpec> architecture_options() {
  const std::string group = "Architecture (Megatron; must agree with config.json)";
  const auto integer = [&](std::string name, std::string help,
                           std::vector<std::string> aliases = {}) {
    return OptionSpec{.name = std::move(name),
                      .type = OptionType::kInt,
                      .help = std::move(help),
                      .aliases = std::move(aliases),
                      .group = group};
  };
  const auto number = [&](std::string name, std::string help,
                          std::vector<std::string> aliases = {}) {
    return OptionSpec{.name = std::move(name),
                      .type = OptionType::kFloat,
                      .help = std::move(help),
                      .aliases = std::move(aliases),
                      .group = group};
  };
  const auto flag = [&](std::string name, std::string help, std::vector<std::string> aliases = {}) {
    return OptionSpec{.name = std::move(name),
                      .type = OptionType::kBool,
                      .help = std::move(help),
                      .aliases = std::move(aliases),
                      .group = group};
  };
  return {
      integer("num_layers", "num_hidden_layers"),
      integer("hidden_size", "hidden_size"),
      integer("ffn_hidden_size", "intermediate_size"),
      integer("num_attention_heads", "num_attention_heads"),
      flag("group_query_attention", "fewer key-value heads than heads"),
      integer("num_query_groups", "num_key_value_heads"),
      integer("kv_channels", "head_dim"),
      integer("max_position_embeddings", "longest position"),
      integer("vocab_size", "vocab_size", {"padded_vocab_size"}),
      integer("rotary_base", "rope_theta", {"rope_theta"}),
      number("norm_epsilon", "rms_norm_eps", {"layernorm_epsilon"}),
      {.name = "normalization",
       .help = "kind of norm",
       .choices = {"RMSNorm", "LayerNorm"},
       .group = group},
      {.name = "position_embedding_type",
       .help = "kind of positions",
       .choices = {"rope", "alibi", "learned_absolute"},
       .group = group},
      flag("swiglu", "gated feed-forward"),
      flag("embed_layernorm", "a norm behind the embedding"),
      flag("untie_embeddings_and_output_weights", "tie_word_embeddings is false"),
      flag("disable_bias_linear", "no biases in linear layers"),
      flag("add_qkv_bias", "biases on q, k, v"),
      flag("qk_layernorm", "norms on q and k"),
      flag("multi_head_latent_attention", "latent attention", {"multi_latent_attention"}),
      integer("q_lora_rank", "q_lora_rank"),
      integer("kv_lora_rank", "kv_lora_rank"),
      integer("qk_nope_head_dim", "qk_nope_head_dim", {"qk_head_dim"}),
      integer("qk_rope_head_dim", "qk_rope_head_dim", {"qk_pos_emb_head_dim"}),
      integer("v_head_dim", "v_head_dim"),
      number("attention_dropout", "0: models are trained without dropout inside"),
      number("hidden_dropout", "0: models are trained without dropout inside"),
  };
}

}  // namespace

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
  std::vector<OptionSpec> all = architecture_options();
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
                     "use_rotary_position_embeddings",
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
                     "no_check_for_nan_in_loss_and_grad"}),
      accepted("distributed_executor", "there is one implementation",
               {"manual_gc_interval", "sparse_mode"}),
      accepted("ckpt_format", "files say what they are"),
      accepted_flag(
          "square_alibi_mask", "the architecture follows from config.json",
          {"fill_neg_inf", "no_pad_to_seq_lengths", "coc_fused_kernel", "enable_hf2mg_convert"}),
      {.name = "spec",
       .type = OptionType::kList,
       .help = "accepted",
       .group = group,
       .ignored_because = "layers follow from config.json"},
      accepted("tokenizer_type", "the tokenizer's files say what it is", {"model_type_hf"}),
      accepted_flag("tokenizer_not_use_fast", "there is one tokenizer implementation",
                    {"no_use_fast"}),
      accepted("init_method_std", "config.json's initializer_range decides"),
      accepted_flag("load_checkpoint_loosely", "missing or unknown tensors are always errors",
                    {"use_checkpoint_args", "use_checkpoint_opt_param_scheduler",
                     "override_opt_param_scheduler"}),
      accepted_flag("calculate_per_token_loss", "every target token of a step counts alike"),
      accepted_flag("encoder_dp_balance", "ranks share the samples of a step by their tokens"),
      accepted_flag("init_model_with_meta_device", "weights are read where they are kept"),
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
