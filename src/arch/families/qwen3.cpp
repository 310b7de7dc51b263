// Qwen3 (dense): no q/k/v bias, RMSNorm on every query and key head, head_dim of its own.
#include "arch/decoder.h"
#include "arch/families/families.h"

namespace danlu::arch {
namespace {

ModelConfig parse_qwen3(const Json& config_json) {
  ModelConfig model = parse_decoder(config_json, "qwen3",
                                    {.norm_eps = 1e-6, .max_positions = 32768, .head_dim = 128});
  const ConfigReader config(config_json);
  model.qkv_bias = model.o_bias = config.boolean_or("attention_bias", false);
  model.qk_norm = true;
  model.sliding_window = qwen_windows(config, model.num_layers);
  model.default_template = "qwen3";
  return model;
}

std::vector<ParamSpec> qwen3_parameters(const ModelConfig& config) {
  return decoder_parameters(config, {});
}

}  // namespace

Family qwen3_family() {
  return {"qwen3",     {"qwen3"},        {"Qwen3ForCausalLM"},
          parse_qwen3, qwen3_parameters, rotary_buffer_names()};
}

}  // namespace danlu::arch
