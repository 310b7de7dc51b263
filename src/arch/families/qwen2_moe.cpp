// Qwen1.5-MoE-A2.7B, Qwen2-57B-A14B: Qwen2 with many small experts and one that every token passes,
// scaled by a gate of its own.
#include "arch/decoder.h"
#include "arch/families/families.h"

namespace danlu::arch {
namespace {

ModelConfig parse_qwen2_moe(const Json& config_json) {
  ModelConfig model =
      parse_decoder(config_json, "qwen2_moe", {.norm_eps = 1e-6, .max_positions = 32768});
  const ConfigReader config(config_json);
  model.qkv_bias = config.boolean_or("qkv_bias", true);
  model.sliding_window = qwen_windows(config, model.num_layers);
  model.experts = parse_qwen_experts(config, model.num_layers);
  model.experts.shared_ffn_size = config.required_size("shared_expert_intermediate_size", kMaxFfn);
  model.experts.shared_gate = true;
  model.default_template = "qwen";
  return model;
}

std::vector<ParamSpec> qwen2_moe_parameters(const ModelConfig& config) {
  return decoder_parameters(config, {});
}

}  // namespace

Family qwen2_moe_family() {
  return {"qwen2_moe",     {"qwen2_moe"},        {"Qwen2MoeForCausalLM"},
          parse_qwen2_moe, qwen2_moe_parameters, rotary_buffer_names()};
}

}  // namespace danlu::arch
