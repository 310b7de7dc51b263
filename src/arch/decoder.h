// arch/decoder.h: what the decoder-only families share: the common keys of config.json and the list
// of parameters. A family file states only what is its own.
#pragma once
#include <string>
#include <vector>

#include "arch/config_reader.h"
#include "arch/model_config.h"

namespace danlu::arch {

/// What a family assumes where config.json is silent.
struct DecoderDefaults {
  double norm_eps = 1e-6;
  double rope_theta = 10000.0;
  int64_t max_positions = 0;
  int64_t head_dim = 0;  ///< 0: hidden_size / num_attention_heads
  bool tie_embeddings = false;
  bool has_three_axes = false;  ///< rotary positions may be of time, height and width
  /// Part of a head's dimensions that is rotated; 0: all are, and no config may say otherwise.
  double partial_rotary = 0.0;
  bool knows_gelu = false;  ///< activations other than SiLU are taken
};

/// Sizes, rotary embedding, dtype and special ids. Family quirks (biases, windows, fused weights)
/// are left at their defaults; sliding_window is all zero. Errors: ModelError naming a missing or
/// impossible key; an activation that the family does not take; quantised weights.
ModelConfig parse_decoder(const Json& config_json, std::string family,
                          const DecoderDefaults& defaults);

/// Reads an activation's name in config.json. Errors: ModelError "<key> must be …".
Activation parse_activation(std::string_view key, const std::string& name);

/// rope_theta, rope_scaling (keys `type` or `rope_type`) and transformers v5's rope_parameters.
/// Errors: ModelError; mrope_section, whose type is "mrope" or any other, unless
/// defaults.has_three_axes; a partial_rotary_factor unless defaults.partial_rotary.
/// REQUIRES: model's head_dim and max_positions are set.
RopeConfig parse_rope(const ConfigReader& config, const ModelConfig& model,
                      const DecoderDefaults& defaults);
/// The same of an object with the keys of transformers v5's rope_parameters.
RopeConfig parse_rope_parameters(const ConfigReader& parameters, const ModelConfig& model,
                                 const DecoderDefaults& defaults);

/// Window per layer from `layer_types` if present (transformers ≥ 4.53), else from the rule that
/// layers with index ≥ first_layer slide. `window` 0: every layer is full.
std::vector<int64_t> window_per_layer(const ConfigReader& config, int64_t num_layers,
                                      int64_t window, int64_t first_layer);

/// Qwen's rule: `use_sliding_window` switches `sliding_window` on for layers ≥ `max_window_layers`.
std::vector<int64_t> qwen_windows(const ConfigReader& config, int64_t num_layers);

/// Experts as Qwen2-MoE and Qwen3-MoE describe them: num_experts, num_experts_per_tok,
/// moe_intermediate_size, norm_topk_prob, router_aux_loss_coef; a layer is dense if mlp_only_layers
/// lists it or decoder_sparse_step does not divide its number counted from 1.
ExpertConfig parse_qwen_experts(const ConfigReader& config, int64_t num_layers);

/// Experts as DeepSeek-V2 (is_v3: V3 and GLM-4.5) describe them: n_routed_experts,
/// n_shared_experts, first_k_dense_replace, topk_method, n_group, … Empty if no layer has any.
ExpertConfig parse_deepseek_experts(const ConfigReader& config, bool is_v3, int64_t num_layers);

/// Names of a family's parameters in files, without ".weight"/".bias"; empty: the family has none.
struct DecoderNames {
  std::string embedding = "model.embed_tokens";
  std::string embedding_norm = {};      ///< of families that norm their embeddings
  std::string positions = {};           ///< of families with learned positions
  std::string layer = "model.layers.";  ///< followed by "<index>."
  std::string attention_norm = "input_layernorm";
  std::string q = "self_attn.q_proj", k = "self_attn.k_proj", v = "self_attn.v_proj";
  std::string qkv = {};  ///< fused families: in place of q, k, v
  std::string o = "self_attn.o_proj";
  std::string q_norm = "self_attn.q_norm", k_norm = "self_attn.k_norm";
  // These belong to latent attention; q is used by a model without q_down.
  std::string q_down = "self_attn.q_a_proj", q_down_norm = "self_attn.q_a_layernorm";
  std::string q_up = "self_attn.q_b_proj";
  std::string kv_down = "self_attn.kv_a_proj_with_mqa", kv_down_norm = "self_attn.kv_a_layernorm";
  std::string kv_up = "self_attn.kv_b_proj";
  std::string post_attention_norm = {};  ///< of families with norms after attention and MLP
  std::string mlp_norm = "post_attention_layernorm";
  std::string gate = "mlp.gate_proj", up = "mlp.up_proj", down = "mlp.down_proj";
  std::string gate_up = {};  ///< fused families: in place of gate and up
  std::string post_mlp_norm = {};
  std::string router = "mlp.gate";
  std::string router_bias = "mlp.gate.e_score_correction_bias";  ///< the whole name
  std::string expert = "mlp.experts.";                           ///< followed by "<number>."
  std::string expert_gate = "gate_proj", expert_up = "up_proj", expert_down = "down_proj";
  std::string shared_expert = "mlp.shared_expert.";  ///< followed by the names of an expert's parts
  std::string shared_expert_gate = "mlp.shared_expert_gate";
  std::string final_norm = "model.norm";
  std::string head = "lm_head";
  // These belong to layers that predict further ahead, after `layer` and the layer's number.
  std::string prediction_token_norm = "enorm", prediction_hidden_norm = "hnorm";
  std::string prediction_join = "eh_proj", prediction_norm = "shared_head.norm";
  std::string prediction_embedding = "embed_tokens", prediction_head = "shared_head.head";
  std::string token_types = {};  ///< of encoders, which have no final_norm and no head
};

/// Every parameter of a decoder with these names, in model order.
std::vector<ParamSpec> decoder_parameters(const ModelConfig& config, const DecoderNames& names);

/// Buffers that old files carry and nobody needs.
std::vector<std::string> rotary_buffer_names();

}  // namespace danlu::arch
