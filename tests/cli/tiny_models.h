// tests/cli/tiny_models.h: config.json of small models of many families.
#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace danlu::test {

/// What of experts each family's config.json says: 4, of which a token takes 2.
inline nlohmann::json experts_of(const std::string& family) {
  using nlohmann::json;
  // The families that count shared experts.
  const json counted = {{"n_routed_experts", 4},
                        {"n_shared_experts", 1},
                        {"moe_intermediate_size", 24},
                        {"first_k_dense_replace", 1}};
  const json latent = {{"num_key_value_heads", 4},
                       {"kv_lora_rank", 16},
                       {"qk_nope_head_dim", 8},
                       {"qk_rope_head_dim", 4},
                       {"v_head_dim", 8}};
  const json yarn = {
      {"type", "yarn"},         {"factor", 4},    {"original_max_position_embeddings", 16},
      {"beta_fast", 32},        {"beta_slow", 1}, {"mscale", 0.707},
      {"mscale_all_dim", 0.707}};
  json own = json::object();
  if (family == "mixtral") own = {{"num_local_experts", 4}, {"rope_theta", 1000000.0}};
  if (family == "qwen2_moe") {
    own = {
        {"num_experts", 4}, {"moe_intermediate_size", 24}, {"shared_expert_intermediate_size", 48}};
  }
  if (family == "qwen3_moe")
    own = {{"num_experts", 4}, {"moe_intermediate_size", 24}, {"head_dim", 12}};
  if (family == "phimoe") {
    own = {{"num_local_experts", 4},
           {"attention_bias", true},
           {"lm_head_bias", true},
           {"rms_norm_eps", 1e-5},
           {"router_jitter_noise", 0.01}};
  }
  if (family == "glm4_moe") {
    own = counted;
    own.update(
        {{"n_group", 1}, {"topk_group", 1}, {"head_dim", 8}, {"num_nextn_predict_layers", 1}});
  }
  if (family.starts_with("deepseek")) {
    own = counted;
    own.update(latent);
  }
  if (family == "deepseek_v2_lite")
    own.update({{"model_type", "deepseek_v2"}, {"rope_scaling", yarn}, {"q_lora_rank", nullptr}});
  if (family == "deepseek_v2") {
    own.update({{"q_lora_rank", 20},
                {"topk_method", "group_limited_greedy"},
                {"n_group", 2},
                {"topk_group", 2},
                {"routed_scaling_factor", 16.0}});
  }
  if (family == "deepseek_v3") {
    own.update({{"q_lora_rank", 20},
                {"topk_method", "noaux_tc"},
                {"scoring_func", "sigmoid"},
                {"norm_topk_prob", true},
                {"n_group", 2},
                {"topk_group", 2},
                {"routed_scaling_factor", 2.5},
                {"num_nextn_predict_layers", 1}});
  }
  if (family == "llama4_text") {
    own = {
        {"num_local_experts", 4},    {"intermediate_size_mlp", 48}, {"head_dim", 8},
        {"attention_chunk_size", 8}, {"num_experts_per_tok", 1},    {"no_rope_layer_interval", 2}};
  }
  return own;
}

/// What sets dense families apart.
inline nlohmann::json dense_quirks_of(const std::string& family) {
  using nlohmann::json;
  if (family == "chatglm") {
    return {{"num_layers", 2},
            {"ffn_hidden_size", 48},
            {"padded_vocab_size", 320},
            {"kv_channels", 8},
            {"multi_query_attention", true},
            {"multi_query_group_num", 2},
            {"add_qkv_bias", true},
            {"layernorm_epsilon", 1e-5},
            {"seq_length", 64},
            {"add_bias_linear", false},
            {"rmsnorm", true}};
  }
  if (family == "gemma2") {
    return {{"head_dim", 12},
            {"hidden_activation", "gelu_pytorch_tanh"},
            {"tie_word_embeddings", true},
            {"query_pre_attn_scalar", 16},
            {"sliding_window", 8},
            {"attn_logit_softcapping", 50.0},
            {"final_logit_softcapping", 30.0}};
  }
  if (family == "minicpm3") {
    return {{"num_key_value_heads", 4}, {"q_lora_rank", 20},     {"kv_lora_rank", 16},
            {"qk_nope_head_dim", 8},    {"qk_rope_head_dim", 4}, {"v_head_dim", 8},
            {"scale_emb", 12},          {"scale_depth", 1.4},    {"dim_model_base", 16}};
  }
  if (family == "gemma" || family == "gemma3_text") {
    json gemma = {{"head_dim", 12},
                  {"hidden_activation", "gelu_pytorch_tanh"},
                  {"tie_word_embeddings", true}};
    if (family == "gemma3_text")
      gemma.update({{"query_pre_attn_scalar", 12},
                    {"sliding_window", 8},
                    {"sliding_window_pattern", 6},
                    {"rope_scaling", {{"rope_type", "linear"}, {"factor", 8.0}}}});
    return gemma;
  }
  if (family == "phi3") return {{"sliding_window", 32}};
  if (family == "glm") return {{"head_dim", 8}, {"attention_bias", true}};
  if (family == "glm4") return {{"head_dim", 8}, {"partial_rotary_factor", 0.5}};
  if (family == "minicpm") return {{"scale_emb", 12}, {"scale_depth", 1.4}, {"dim_model_base", 16}};
  if (family == "qwen3") return {{"head_dim", 12}};
  if (family == "internlm3") return {{"head_dim", 8}, {"qkv_bias", false}};
  if (family == "internlm") return {{"bias", true}};
  if (family == "internlm2") return {{"bias", false}};
  if (family == "qwen")
    return {{"intermediate_size", 96}, {"layer_norm_epsilon", 1e-6}, {"seq_length", 64}};
  if (family == "bloom")
    return {{"intermediate_size", 128}, {"layer_norm_epsilon", 1e-5}, {"seq_length", 64}};
  if (family == "gpt2") return {{"layer_norm_epsilon", 1e-5}};
  return json::object();
}

/// Keys that a family's config.json does not have.
inline std::vector<std::string> keys_without(const std::string& family) {
  if (family == "baichuan" || family == "internlm") return {"num_key_value_heads"};
  if (family == "qwen") return {"num_key_value_heads", "rms_norm_eps"};
  if (family == "bloom") return {"num_key_value_heads", "rms_norm_eps", "max_position_embeddings"};
  if (family == "gpt2") return {"num_key_value_heads", "rms_norm_eps", "hidden_act"};
  return {};
}

/// 2 layers; vocabulary and positions of the good tokenizer and data.
inline nlohmann::json tiny_model(const std::string& family) {
  nlohmann::json config = {{"model_type", family},
                           {"vocab_size", 320},
                           {"hidden_size", 32},
                           {"intermediate_size", 48},
                           {"num_hidden_layers", 2},
                           {"num_attention_heads", 4},
                           {"num_key_value_heads", 2},
                           {"num_experts_per_tok", 2},
                           {"max_position_embeddings", 64},
                           {"initializer_range", 0.3},
                           {"rms_norm_eps", 1e-6},
                           {"hidden_act", "silu"},
                           {"tie_word_embeddings", false},
                           {"torch_dtype", "float32"},
                           {"bos_token_id", 1},
                           {"eos_token_id", 2}};
  config.update(experts_of(family));
  config.update(dense_quirks_of(family));
  for (const std::string& key : keys_without(family)) config.erase(key);
  return config;
}

}  // namespace danlu::test
