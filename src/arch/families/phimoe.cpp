// Phi-3.5-MoE: norms that subtract the mean, biases in attention and head, sparsemixer's router.
#include "arch/decoder.h"
#include "arch/families/families.h"

namespace danlu::arch {
namespace {

ModelConfig parse_phimoe(const Json& config_json) {
  ModelConfig model =
      parse_decoder(config_json, "phimoe", {.norm_eps = 1e-5, .max_positions = 4096});
  const ConfigReader config(config_json);
  model.norm = NormKind::kLayer;
  model.qkv_bias = model.o_bias = config.boolean_or("attention_bias", false);
  model.head_bias = config.boolean_or("lm_head_bias", false);
  ExpertConfig& experts = model.experts;
  experts.count = config.required_size("num_local_experts", kMaxExperts);
  experts.per_token = config.size_or("num_experts_per_tok", 2, kMaxExperts);
  experts.ffn_size = model.ffn_size;
  experts.score = RouterScore::kSparseMixer;
  experts.jitter = config.number_or("router_jitter_noise", 0.01);
  experts.sparse_layer.assign(static_cast<size_t>(model.num_layers), true);
  experts.aux_loss_coef = config.number("router_aux_loss_coef");
  const int64_t window = config.size_or("sliding_window", 0, kMaxPositions);
  model.sliding_window = window_per_layer(config, model.num_layers, window, 0);
  model.default_template = "phi3";
  return model;
}

std::vector<ParamSpec> phimoe_parameters(const ModelConfig& config) {
  return decoder_parameters(config, {.router = "block_sparse_moe.gate",
                                     .expert = "block_sparse_moe.experts.",
                                     .expert_gate = "w1",
                                     .expert_up = "w3",
                                     .expert_down = "w2"});
}

}  // namespace

Family phimoe_family() {
  return {"phimoe",     {"phimoe"},        {"PhiMoEForCausalLM", "PhimoeForCausalLM"},
          parse_phimoe, phimoe_parameters, rotary_buffer_names()};
}

}  // namespace danlu::arch
