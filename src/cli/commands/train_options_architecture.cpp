// The architecture as Megatron's and MindSpeed-LLM's scripts type it again: compared with
// config.json (settings/options/megatron_flags.h).
#include "cli/commands/train_options.h"

namespace danlu::cli {
namespace {

const std::string kRetyped = "Architecture (Megatron; must agree with config.json)";

OptionSpec retyped(OptionType type, std::string name, std::string help,
                   std::vector<std::string> aliases = {}) {
  return OptionSpec{.name = std::move(name),
                    .type = type,
                    .help = std::move(help),
                    .aliases = std::move(aliases),
                    .group = kRetyped};
}

OptionSpec retyped_integer(std::string name, std::string help,
                           std::vector<std::string> aliases = {}) {
  return retyped(OptionType::kInt, std::move(name), std::move(help), std::move(aliases));
}

OptionSpec retyped_number(std::string name, std::string help,
                          std::vector<std::string> aliases = {}) {
  return retyped(OptionType::kFloat, std::move(name), std::move(help), std::move(aliases));
}

OptionSpec retyped_switch(std::string name, std::string help,
                          std::vector<std::string> aliases = {}) {
  return retyped(OptionType::kBool, std::move(name), std::move(help), std::move(aliases));
}

std::vector<OptionSpec> retyped_sizes() {
  return {
      retyped_integer("num_layers", "num_hidden_layers, and the empty ones of noop_layers"),
      retyped_integer("hidden_size", "hidden_size"),
      retyped_integer("ffn_hidden_size", "intermediate_size"),
      retyped_integer("num_attention_heads", "num_attention_heads"),
      retyped_switch("group_query_attention", "fewer key-value heads than heads"),
      retyped_integer("num_query_groups", "num_key_value_heads"),
      retyped_integer("kv_channels", "head_dim"),
      retyped_integer("max_position_embeddings", "longest position"),
      retyped_integer("vocab_size", "vocab_size", {"padded_vocab_size"}),
      retyped_integer("q_lora_rank", "q_lora_rank"),
      retyped_integer("kv_lora_rank", "kv_lora_rank"),
      retyped_integer("qk_nope_head_dim", "qk_nope_head_dim", {"qk_head_dim"}),
      retyped_integer("qk_rope_head_dim", "qk_rope_head_dim", {"qk_pos_emb_head_dim"}),
      retyped_integer("v_head_dim", "v_head_dim"),
      retyped_integer("sliding_window", "sliding_window", {"interleave_sliding_window"}),
  };
}

std::vector<OptionSpec> retyped_parts() {
  return {
      {.name = "normalization",
       .help = "kind of norm",
       .choices = {"RMSNorm", "LayerNorm"},
       .group = kRetyped},
      retyped_number("norm_epsilon", "rms_norm_eps", {"layernorm_epsilon"}),
      retyped_switch("add_rmsnorm_offset", "norms scale by 1 + weight"),
      retyped_switch("post_norm", "norms behind attention and MLP"),
      retyped_switch("embed_layernorm", "a norm behind the embedding"),
      retyped_switch("input_embeds_norm", "embeddings are scaled by the root of hidden_size"),
      retyped_switch("swiglu", "gated feed-forward"),
      retyped_switch("geglu", "gated by GELU"),
      retyped_switch("gelu_tanh", "GELU by its approximation with tanh"),
      retyped_switch("untie_embeddings_and_output_weights", "tie_word_embeddings is false"),
      retyped_switch("disable_bias_linear", "no biases in linear layers"),
      retyped_switch("add_qkv_bias", "biases on q, k, v"),
      retyped_switch("add_dense_bias", "a bias on what attention gives"),
      retyped_switch("add_output_layer_bias", "a bias on the head"),
      retyped_switch("qk_layernorm", "norms on q and k"),
      retyped_switch("multi_head_latent_attention", "latent attention", {"multi_latent_attention"}),
      retyped_number("query_pre_attn_scalar", "query_pre_attn_scalar"),
      retyped_number("attn_logit_softcapping", "attn_logit_softcapping"),
      retyped_number("output_logit_softcapping", "final_logit_softcapping"),
      retyped_number("scale_emb", "scale_emb"),
      retyped_number("scale_depth", "scale_depth"),
      retyped_number("dim_model_base", "dim_model_base"),
      retyped_number("init_method_std", "initializer_range of a model that flags describe"),
      retyped_number("attention_dropout", "0: models are trained without dropout inside"),
      retyped_number("hidden_dropout", "0: models are trained without dropout inside"),
  };
}

std::vector<OptionSpec> retyped_positions() {
  return {
      {.name = "position_embedding_type",
       .help = "kind of positions",
       .choices = {"rope", "alibi", "learned_absolute"},
       .group = kRetyped},
      retyped_switch("use_rotary_position_embeddings",
                     "the same as --position_embedding_type rope"),
      retyped_integer("rotary_base", "rope_theta", {"rope_theta"}),
      retyped_number("rotary_percent", "part of a head that is rotated", {"partial_rotary_factor"}),
      retyped_switch("use_glm_rope", "neighbouring dimensions are rotated together"),
      {.name = "rope_scaling_type",
       .help = "rope_scaling's kind",
       .choices = {"linear", "dynamic", "llama3", "yarn", "longrope"},
       .group = kRetyped},
      retyped_number("rope_scaling_factor", "rope_scaling's factor", {"dynamic_factor"}),
      retyped_integer("rope_scaling_original_max_position_embeddings",
                      "rope_scaling's original_max_position_embeddings",
                      {"original_max_position_embeddings"}),
      retyped_number("low_freq_factor", "rope_scaling's low_freq_factor"),
      retyped_number("high_freq_factor", "rope_scaling's high_freq_factor"),
      retyped_number("rope_scaling_beta_fast", "rope_scaling's beta_fast", {"beta_fast"}),
      retyped_number("rope_scaling_beta_slow", "rope_scaling's beta_slow", {"beta_slow"}),
      retyped_number("rope_scaling_mscale", "rope_scaling's mscale"),
      retyped_number("rope_scaling_mscale_all_dim", "rope_scaling's mscale_all_dim"),
      retyped(OptionType::kList, "long_factor", "rope_scaling's long_factor"),
      retyped(OptionType::kList, "short_factor", "rope_scaling's short_factor"),
      retyped_number("long_mscale", "rope_scaling's long_mscale"),
      retyped_number("short_mscale", "rope_scaling's short_mscale"),
      {.name = "longrope_freqs_type",
       .help = "accepted",
       .group = kRetyped,
       .ignored_because = "the architecture follows from config.json"},
  };
}

}  // namespace

std::vector<OptionSpec> train_architecture_options() {
  std::vector<OptionSpec> all = retyped_sizes();
  for (std::vector<OptionSpec> part : {retyped_parts(), retyped_positions()}) {
    for (OptionSpec& spec : part) all.push_back(std::move(spec));
  }
  return all;
}

}  // namespace danlu::cli
