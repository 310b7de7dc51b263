// Llama 1, 2, 3, 3.1, 3.2 and models published under its architecture (Yi, DeepSeek LLM, Aquila,
// TinyLlama, …).
#include "arch/decoder.h"
#include "arch/families/families.h"

namespace danlu::arch {
namespace {

ModelConfig parse_llama(const Json& config_json) {
  ModelConfig model =
      parse_decoder(config_json, "llama", {.norm_eps = 1e-6, .max_positions = 2048});
  const ConfigReader config(config_json);
  model.qkv_bias = model.o_bias = config.boolean_or("attention_bias", false);
  model.mlp_bias = config.boolean_or("mlp_bias", false);
  return model;
}

std::vector<ParamSpec> llama_parameters(const ModelConfig& config) {
  return decoder_parameters(config, {});
}

}  // namespace

Family llama_family() {
  return {"llama",
          {"llama", "aquila"},
          {"LlamaForCausalLM", "LLaMAForCausalLM", "AquilaForCausalLM"},
          parse_llama,
          llama_parameters,
          rotary_buffer_names()};
}

}  // namespace danlu::arch
