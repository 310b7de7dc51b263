// Mistral 7B and its successors of the same shape: Llama with a sliding window in every layer.
#include "arch/decoder.h"
#include "arch/families/families.h"

namespace danlu::arch {
namespace {

ModelConfig parse_mistral(const Json& config_json) {
  ModelConfig model =
      parse_decoder(config_json, "mistral", {.norm_eps = 1e-6, .max_positions = 131072});
  const ConfigReader config(config_json);
  // Missing means 4096, null means none: the class default and what later releases write.
  const bool is_null = config.mentions("sliding_window") && !config.has("sliding_window");
  const int64_t window = is_null ? 0 : config.size_or("sliding_window", 4096, kMaxPositions);
  model.sliding_window = window_per_layer(config, model.num_layers, window, 0);
  model.default_template = "mistral";
  return model;
}

std::vector<ParamSpec> mistral_parameters(const ModelConfig& config) {
  return decoder_parameters(config, {});
}

}  // namespace

Family mistral_family() {
  return {"mistral",     {"mistral"},        {"MistralForCausalLM"},
          parse_mistral, mistral_parameters, rotary_buffer_names()};
}

}  // namespace danlu::arch
