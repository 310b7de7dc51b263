// tests/cli/tiny_experts.h: config.json of small models with experts.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

namespace danlu::test {

/// 4 experts of which a token takes 2, in each of 2 layers; vocabulary and positions of the good
/// tokenizer and data.
inline nlohmann::json tiny_experts(const std::string& family) {
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
  if (family == "mixtral") config["num_local_experts"] = 4;
  if (family == "qwen3_moe")
    config.update({{"num_experts", 4}, {"moe_intermediate_size", 24}, {"head_dim", 12}});
  if (family == "glm4_moe") {
    config.update({{"n_routed_experts", 4},
                   {"n_shared_experts", 1},
                   {"moe_intermediate_size", 24},
                   {"first_k_dense_replace", 1},
                   {"n_group", 1},
                   {"topk_group", 1},
                   {"head_dim", 8},
                   {"num_nextn_predict_layers", 1}});
  }
  if (family == "deepseek_v2") {
    config.update({{"num_key_value_heads", 4},
                   {"n_routed_experts", 4},
                   {"n_shared_experts", 1},
                   {"moe_intermediate_size", 24},
                   {"first_k_dense_replace", 1},
                   {"q_lora_rank", 20},
                   {"kv_lora_rank", 16},
                   {"qk_nope_head_dim", 8},
                   {"qk_rope_head_dim", 4},
                   {"v_head_dim", 8}});
  }
  return config;
}

}  // namespace danlu::test
