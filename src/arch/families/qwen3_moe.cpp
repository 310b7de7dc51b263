// Qwen3-30B-A3B, Qwen3-235B-A22B: Qwen3 with experts, none of them shared.
#include "arch/decoder.h"
#include "arch/families/families.h"

namespace danlu::arch {
namespace {

ModelConfig parse_qwen3_moe(const Json& config_json) {
  ModelConfig model =
      parse_decoder(config_json, "qwen3_moe", {.norm_eps = 1e-6, .max_positions = 32768});
  const ConfigReader config(config_json);
  model.qkv_bias = model.o_bias = config.boolean_or("attention_bias", false);
  model.qk_norm = true;
  model.sliding_window = qwen_windows(config, model.num_layers);
  model.experts = parse_qwen_experts(config, model.num_layers);
  model.default_template = "qwen3";
  return model;
}

std::vector<ParamSpec> qwen3_moe_parameters(const ModelConfig& config) {
  return decoder_parameters(config, {});
}

}  // namespace

Family qwen3_moe_family() {
  return {"qwen3_moe",     {"qwen3_moe"},        {"Qwen3MoeForCausalLM"},
          parse_qwen3_moe, qwen3_moe_parameters, rotary_buffer_names()};
}

}  // namespace danlu::arch
