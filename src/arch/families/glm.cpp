// GLM-4 as transformers has it (glm: GLM-4-9B-hf, glm4: GLM-4-0414, with norms after attention and
// MLP): rotary embedding of neighbours on the first half of a head, gate and up in one matrix.
#include "arch/decoder.h"
#include "arch/families/families.h"

namespace danlu::arch {
namespace {

ModelConfig parse_any_glm(const Json& config_json, const char* family, double norm_eps) {
  ModelConfig model = parse_decoder(
      config_json, family,
      {.norm_eps = norm_eps, .max_positions = 131072, .head_dim = 128, .partial_rotary = 0.5});
  model.rope.is_pairwise = true;
  model.joins_gate_up = true;
  model.qkv_bias = ConfigReader(config_json).boolean_or("attention_bias", false);
  model.default_template = "glm4";
  return model;
}

ModelConfig parse_glm(const Json& config_json) {
  return parse_any_glm(config_json, "glm", 1.5625e-7);
}

ModelConfig parse_glm4(const Json& config_json) {
  ModelConfig model = parse_any_glm(config_json, "glm4", 1e-5);
  model.has_post_norms = true;
  return model;
}

std::vector<ParamSpec> glm_parameters(const ModelConfig& config) {
  return decoder_parameters(config, {.gate_up = "mlp.gate_up_proj"});
}

std::vector<ParamSpec> glm4_parameters(const ModelConfig& config) {
  return decoder_parameters(config, {.post_attention_norm = "post_self_attn_layernorm",
                                     .gate_up = "mlp.gate_up_proj",
                                     .post_mlp_norm = "post_mlp_layernorm"});
}

}  // namespace

Family glm_family() {
  return {"glm", {"glm"}, {"GlmForCausalLM"}, parse_glm, glm_parameters, rotary_buffer_names()};
}

Family glm4_family() {
  return {"glm4",     {"glm4"},        {"Glm4ForCausalLM"},
          parse_glm4, glm4_parameters, rotary_buffer_names()};
}

}  // namespace danlu::arch
