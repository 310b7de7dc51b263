// Qwen1.5, Qwen2, Qwen2.5: Llama with biases on q, k and v, and an optional window in the upper
// layers.
#include "arch/decoder.h"
#include "arch/families/families.h"

namespace danlu::arch {
namespace {

ModelConfig parse_qwen2(const Json& config_json) {
  ModelConfig model =
      parse_decoder(config_json, "qwen2", {.norm_eps = 1e-6, .max_positions = 32768});
  const ConfigReader config(config_json);
  model.qkv_bias = true;
  model.sliding_window = qwen_windows(config, model.num_layers);
  model.default_template = "qwen";
  return model;
}

std::vector<ParamSpec> qwen2_parameters(const ModelConfig& config) {
  return decoder_parameters(config, {});
}

}  // namespace

Family qwen2_family() {
  return {"qwen2",     {"qwen2"},        {"Qwen2ForCausalLM"},
          parse_qwen2, qwen2_parameters, rotary_buffer_names()};
}

}  // namespace danlu::arch
