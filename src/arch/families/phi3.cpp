// Phi-3, 3.5 and 4: Llama with q, k and v in one matrix, gate and up in another, and longrope.
#include "arch/decoder.h"
#include "arch/families/families.h"
#include "base/error.h"

namespace danlu::arch {
namespace {

ModelConfig parse_phi3(const Json& config_json) {
  ModelConfig model = parse_decoder(
      config_json, "phi3", {.norm_eps = 1e-5, .max_positions = 4096, .partial_rotary = 1.0});
  const ConfigReader config(config_json);
  if (config.boolean_or("attention_bias", false))
    throw ModelError(tr("[config.json] attention_bias must be false, got true"));
  model.qkv_layout = QkvLayout::kJoined;
  model.joins_gate_up = true;
  const int64_t window =
      config.has("sliding_window") ? config.size_or("sliding_window", 0, kMaxPositions) : 0;
  model.sliding_window = window_per_layer(config, model.num_layers, window, 0);
  model.default_template = "phi3";
  return model;
}

std::vector<ParamSpec> phi3_parameters(const ModelConfig& config) {
  return decoder_parameters(config, {.qkv = "self_attn.qkv_proj", .gate_up = "mlp.gate_up_proj"});
}

}  // namespace

Family phi3_family() {
  return {"phi3",     {"phi3"},        {"Phi3ForCausalLM"},
          parse_phi3, phi3_parameters, rotary_buffer_names()};
}

}  // namespace danlu::arch
