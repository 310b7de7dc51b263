// tests/support/tiny_model.h: writes small Hugging Face model directories with random weights.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <numbers>
#include <string>
#include <vector>

#include "arch/model_config.h"
#include "arch/turned_matrices.h"
#include "base/file.h"
#include "base/rng.h"
#include "support/temporary_directory.h"
#include "weights/tensor_source.h"

namespace danlu::test {

/// The tower of a small Qwen2-VL or Qwen2.5-VL.
inline void add_tiny_tower(Json& config) {
  const bool is_gated = config["model_type"] == "qwen2_5_vl";
  Json vision = {{"depth", 2},
                 {"num_heads", 2},
                 {"in_channels", 3},
                 {"patch_size", 4},
                 {"spatial_merge_size", 2},
                 {"temporal_patch_size", 2},
                 {"hidden_act", is_gated ? "silu" : "quick_gelu"}};
  if (is_gated) {
    vision.update({{"hidden_size", 24},
                   {"intermediate_size", 20},
                   {"out_hidden_size", config["hidden_size"]},
                   {"window_size", 16},
                   {"fullatt_block_indexes", {1}},
                   {"tokens_per_second", 2}});
  } else {
    vision.update({{"embed_dim", 24}, {"mlp_ratio", 2}, {"hidden_size", config["hidden_size"]}});
  }
  config.update({{"vision_config", vision},
                 {"rope_scaling", {{"type", "mrope"}, {"mrope_section", {2, 1, 1}}}},
                 {"vision_start_token_id", 90},
                 {"vision_end_token_id", 91},
                 {"image_token_id", 92},
                 {"video_token_id", 93}});
}

/// What sets further dense families apart.
inline void add_dense_quirks(const std::string& model_type, Json& config) {
  if (model_type.starts_with("gemma")) {
    config.update({{"head_dim", 12}, {"hidden_activation", "gelu_pytorch_tanh"}});
    config["tie_word_embeddings"] = true;
  }
  if (model_type == "gemma2" || model_type == "gemma3_text")
    config.update({{"query_pre_attn_scalar", 10}, {"sliding_window", 3}});
  if (model_type == "gemma2") config["attn_logit_softcapping"] = 2.0;
  if (model_type == "gemma3_text") config["sliding_window_pattern"] = 2;
  if (model_type == "glm") config.update({{"head_dim", 8}, {"attention_bias", true}});
  if (model_type == "glm4") config["head_dim"] = 8;
  if (model_type == "chatglm") {
    config.erase("num_key_value_heads");
    config.update({{"multi_query_attention", true},
                   {"multi_query_group_num", 2},
                   {"add_qkv_bias", true},
                   {"layernorm_epsilon", 1e-5}});
  }
  if (model_type == "minicpm" || model_type == "minicpm3")
    config.update({{"scale_emb", 12}, {"scale_depth", 1.4}, {"dim_model_base", 16}});
  if (model_type == "bloom") {
    for (const char* other : {"num_key_value_heads", "rms_norm_eps", "max_position_embeddings"})
      config.erase(other);
    config.update({{"intermediate_size", 128}, {"layer_norm_epsilon", 1e-5}, {"seq_length", 128}});
  }
  if (model_type == "bert" || model_type.ends_with("roberta")) {
    for (const char* other : {"num_key_value_heads", "rms_norm_eps", "eos_token_id"})
      config.erase(other);
    config.update({{"hidden_act", "gelu"}, {"type_vocab_size", model_type == "bert" ? 2 : 1}});
    config["pad_token_id"] = model_type == "bert" ? 0 : 1;
  }
  if (model_type == "gpt2") {
    for (const char* other : {"num_key_value_heads", "rms_norm_eps", "hidden_act"})
      config.erase(other);
    config["layer_norm_epsilon"] = 1e-5;
  }
  if (model_type == "internlm3") config.update({{"head_dim", 12}, {"qkv_bias", true}});
  if (model_type == "internlm" || model_type == "qwen") config.erase("num_key_value_heads");
  if (model_type == "internlm") config["bias"] = true;
  if (model_type == "qwen") {
    config.erase("rms_norm_eps");
    config.update({{"intermediate_size", 112}, {"layer_norm_epsilon", 1e-6}, {"seq_length", 128}});
  }
}

/// config.json of a small model of any family ("llama", "qwen2", …): 2 layers, width 32, 4 heads, 2
/// KV heads where the family has them, vocabulary 97; with latent attention vectors of 20 and 12
/// and dense layers alone; with experts: 4 of them, 2 for each token; with a vision tower: 2
/// blocks, width 24, 2 heads, patches of 4 pixels. Change keys before writing as a test needs.
inline Json tiny_config(const std::string& model_type = "qwen2") {
  const arch::Family& family = arch::family_named(model_type);
  Json config = {{"architectures", {family.architectures.front()}},
                 {"model_type", model_type},
                 {"hidden_act", "silu"},
                 {"hidden_size", 32},
                 {"intermediate_size", 56},
                 {"num_hidden_layers", 2},
                 {"num_attention_heads", 4},
                 {"max_position_embeddings", 128},
                 {"rms_norm_eps", 1e-6},
                 {"initializer_range", 0.02},
                 {"bos_token_id", 1},
                 {"eos_token_id", 2},
                 {"tie_word_embeddings", false},
                 {"torch_dtype", "float32"},
                 {"vocab_size", 97}};
  if (model_type != "baichuan") config["num_key_value_heads"] = 2;
  if (model_type == "qwen3") config["head_dim"] = 12;
  if (model_type == "internlm2") config["bias"] = false;
  if (model_type == "mixtral")
    config.update({{"num_local_experts", 4}, {"num_experts_per_tok", 2}});
  if (model_type.ends_with("_moe")) {
    config.update({{"num_experts", 4}, {"num_experts_per_tok", 2}, {"moe_intermediate_size", 24}});
  }
  if (model_type == "phimoe") config["num_local_experts"] = 4;
  if (model_type == "llama4_text") {
    config.update({{"num_local_experts", 4},
                   {"intermediate_size_mlp", 40},
                   {"attention_chunk_size", 5},
                   {"no_rope_layer_interval", 2},
                   {"floor_scale", 4}});
  }
  if (model_type == "glm4_moe") {
    config.update({{"n_routed_experts", 4},
                   {"n_shared_experts", 1},
                   {"first_k_dense_replace", 0},
                   {"n_group", 1},
                   {"topk_group", 1},
                   {"head_dim", 8}});
  }
  if (model_type == "qwen2_moe") config["shared_expert_intermediate_size"] = 40;
  if (model_type == "qwen3_moe") config["head_dim"] = 12;
  if (model_type.ends_with("_vl")) add_tiny_tower(config);
  if (model_type == "qwen3_next" || model_type.starts_with("qwen3_5")) {
    config.update({{"head_dim", 8},
                   {"layer_types", {"linear_attention", "full_attention"}},
                   {"linear_num_key_heads", 2},
                   {"linear_num_value_heads", 4},
                   {"linear_key_head_dim", 6},
                   {"linear_value_head_dim", 5}});
  }
  if (model_type == "qwen3_next" || model_type == "qwen3_5_moe_text") {
    config.update({{"num_experts", 4},
                   {"num_experts_per_tok", 2},
                   {"moe_intermediate_size", 24},
                   {"shared_expert_intermediate_size", 40}});
  }
  if (model_type.starts_with("deepseek") || model_type == "minicpm3") {
    config.update({{"num_key_value_heads", 4},
                   {"q_lora_rank", 20},
                   {"kv_lora_rank", 12},
                   {"qk_nope_head_dim", 6},
                   {"qk_rope_head_dim", 4},
                   {"v_head_dim", 7}});
  }
  add_dense_quirks(model_type, config);
  return config;
}

/// Standard normal number `index` of stream `seed`.
inline float tiny_normal(uint64_t seed, uint64_t index) {
  const double u = (static_cast<double>(mix64(seed, 2 * index) >> 11) + 0.5) * 0x1p-53;
  const double v = static_cast<double>(mix64(seed, 2 * index + 1) >> 11) * 0x1p-53;
  return static_cast<float>(std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v));
}

/// Writes config.json and weights: matrices N(0, 0.2²), norm weights N(0, 0.1²) around what changes
/// nothing, biases N(0, 0.1²), each from (seed, position in model order), in `dtype` (F32 or BF16).
/// Returns the parsed config.
inline arch::ModelConfig write_tiny_model(const std::filesystem::path& directory,
                                          const Json& config_json = tiny_config(),
                                          uint64_t seed = 1, DType dtype = DType::kF32,
                                          const weights::SaveOptions& save = {}) {
  std::filesystem::create_directories(directory);
  write_json_file(directory / "config.json", config_json);
  const arch::ModelConfig config = arch::load_model_config(directory);
  std::vector<weights::TensorInfo> infos;
  std::vector<arch::ParamSpec> specs;
  for (const arch::ParamSpec& spec : arch::parameters_of(config)) {
    if (!spec.tied_to.empty()) continue;
    infos.push_back({spec.name, dtype, spec.shape});
    if (arch::turns_matrices(config) && spec.layer >= 0)
      std::reverse(infos.back().shape.begin(), infos.back().shape.end());
    specs.push_back(spec);
  }
  std::vector<std::byte> bytes;
  const auto bytes_of = [&](size_t index) -> std::span<const std::byte> {
    const auto count = static_cast<size_t>(infos[index].num_elements());
    std::vector<float> values(count);
    const bool is_norm = infos[index].shape.size() == 1 && !specs[index].is_bias;
    const float neutral = config.norm == arch::NormKind::kRmsOffset ? 0 : 1;
    for (size_t i = 0; i < count; ++i) {
      const float normal = tiny_normal(seed + 1000 * index, i);
      values[i] = is_norm                ? neutral + 0.1f * normal
                  : specs[index].is_bias ? 0.1f * normal
                                         : 0.2f * normal;
    }
    bytes.resize(infos[index].size_bytes());
    cast_elements(values.data(), DType::kF32, bytes.data(), dtype, count);
    return bytes;
  };
  weights::save_safetensors(directory, infos, bytes_of, save);
  return config;
}

}  // namespace danlu::test
