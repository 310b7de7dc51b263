// InternLM3: Llama with a head_dim of its own and biases that two keys switch.
#include "arch/decoder.h"
#include "arch/families/families.h"

namespace danlu::arch {
namespace {

ModelConfig parse_internlm3(const Json& config_json) {
  ModelConfig model =
      parse_decoder(config_json, "internlm3", {.norm_eps = 1e-6, .max_positions = 32768});
  const ConfigReader config(config_json);
  model.qkv_bias = config.boolean_or("qkv_bias", false);
  model.o_bias = model.mlp_bias = config.boolean_or("bias", false);
  model.default_template = "intern2";
  return model;
}

std::vector<ParamSpec> internlm3_parameters(const ModelConfig& config) {
  return decoder_parameters(config, {});
}

}  // namespace

Family internlm3_family() {
  return {"internlm3",     {"internlm3"},        {"InternLM3ForCausalLM"},
          parse_internlm3, internlm3_parameters, rotary_buffer_names()};
}

}  // namespace danlu::arch
