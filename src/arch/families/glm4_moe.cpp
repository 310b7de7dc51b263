// GLM-4.5: half of a head is rotated, DeepSeek-V3's router, dense layers first.
#include "arch/decoder.h"
#include "arch/families/families.h"

namespace danlu::arch {
namespace {

ModelConfig parse_glm4_moe(const Json& config_json) {
  ModelConfig model = parse_decoder(
      config_json, "glm4_moe",
      {.norm_eps = 1e-5, .max_positions = 131072, .head_dim = 128, .partial_rotary = 0.5});
  const ConfigReader config(config_json);
  model.qkv_bias = config.boolean_or("attention_bias", false);
  model.qk_norm = config.boolean_or("use_qk_norm", false);
  model.experts = parse_deepseek_experts(config, /*is_v3=*/true, model.num_layers);
  model.default_template = "glm4";
  return model;
}

std::vector<ParamSpec> glm4_moe_parameters(const ModelConfig& config) {
  return decoder_parameters(config, {.shared_expert = "mlp.shared_experts."});
}

}  // namespace

Family glm4_moe_family() {
  return {"glm4_moe",     {"glm4_moe"},        {"Glm4MoeForCausalLM"},
          parse_glm4_moe, glm4_moe_parameters, rotary_buffer_names()};
}

}  // namespace danlu::arch
