// Mixtral 8x7B, 8x22B: Mistral with experts in every layer.
#include "arch/decoder.h"
#include "arch/families/families.h"

namespace danlu::arch {
namespace {

ModelConfig parse_mixtral(const Json& config_json) {
  ModelConfig model = parse_decoder(config_json, "mixtral",
                                    {.norm_eps = 1e-5, .rope_theta = 1e6, .max_positions = 131072});
  const ConfigReader config(config_json);
  model.experts.count = config.required_size("num_local_experts", kMaxExperts);
  model.experts.per_token = config.required_size("num_experts_per_tok", kMaxExperts);
  model.experts.ffn_size = model.ffn_size;
  // Softmax over the chosen experts alone is the same as softmax over all, made to sum to 1.
  model.experts.norm_topk = true;
  model.experts.sparse_layer.assign(static_cast<size_t>(model.num_layers), true);
  model.experts.aux_loss_coef = config.number("router_aux_loss_coef");
  // Unlike Mistral's, a missing window means none.
  const int64_t window = config.size_or("sliding_window", 0, kMaxPositions);
  model.sliding_window = window_per_layer(config, model.num_layers, window, 0);
  model.default_template = "mixtral";
  return model;
}

std::vector<ParamSpec> mixtral_parameters(const ModelConfig& config) {
  return decoder_parameters(config, {.router = "block_sparse_moe.gate",
                                     .expert = "block_sparse_moe.experts.",
                                     .expert_gate = "w1",
                                     .expert_up = "w3",
                                     .expert_down = "w2"});
}

}  // namespace

Family mixtral_family() {
  return {"mixtral",     {"mixtral"},        {"MixtralForCausalLM"},
          parse_mixtral, mixtral_parameters, rotary_buffer_names()};
}

}  // namespace danlu::arch
