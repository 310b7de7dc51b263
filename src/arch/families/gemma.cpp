// Gemma 1, 2 and the text part of 3: norms of 1 + w, scaled embeddings, GeGLU, a head_dim of its
// own.
#include <cmath>

#include "arch/decoder.h"
#include "arch/embedding_noise.h"
#include "arch/families/families.h"
#include "base/error.h"

namespace danlu::arch {
namespace {

/// What all generations share.
ModelConfig parse_any_gemma(const Json& config_json, const char* family, DecoderDefaults defaults) {
  defaults.norm_eps = 1e-6;
  defaults.head_dim = 256;
  defaults.tie_embeddings = true;
  defaults.knows_gelu = true;
  ModelConfig model = parse_decoder(config_json, family, defaults);
  const ConfigReader config(config_json);
  // hidden_act is a leftover: transformers reads hidden_activation, which may be null.
  model.activation = parse_activation(
      "hidden_activation", config.text("hidden_activation").value_or("gelu_pytorch_tanh"));
  if (config.boolean_or("use_bidirectional_attention", false))
    throw ModelError(tr("[config.json] use_bidirectional_attention must be false, got true"));
  model.norm = NormKind::kRmsOffset;
  model.embedding_scale = std::sqrt(static_cast<double>(model.hidden_size));
  model.qkv_bias = model.o_bias = config.boolean_or("attention_bias", false);
  return model;
}

ModelConfig parse_gemma(const Json& config_json) {
  ModelConfig model = parse_any_gemma(config_json, "gemma", {.max_positions = 8192});
  model.default_template = "gemma";
  return model;
}

/// Norms after attention and MLP as well, and a scale of scores of its own.
void read_second_generation(const ConfigReader& config, ModelConfig& model) {
  model.has_post_norms = true;
  const double scalar = config.number_or("query_pre_attn_scalar", 256.0);
  if (scalar <= 0) {
    throw ModelError(
        tr("[config.json] query_pre_attn_scalar must be a positive number, got {}", scalar));
  }
  model.attention_scale = 1.0 / std::sqrt(scalar);
  model.default_template = "gemma";
}

/// Missing means `fallback`, null means none.
double read_cap(const ConfigReader& config, std::string_view key, double fallback) {
  if (config.mentions(key) && !config.has(key)) return 0;
  const double cap = config.number_or(key, fallback);
  if (cap < 0) throw ModelError(tr("[config.json] {} must not be negative, got {}", key, cap));
  return cap;
}

ModelConfig parse_gemma2(const Json& config_json) {
  ModelConfig model = parse_any_gemma(config_json, "gemma2", {.max_positions = 8192});
  const ConfigReader config(config_json);
  read_second_generation(config, model);
  model.attention_softcap = read_cap(config, "attn_logit_softcapping", 50.0);
  model.logit_softcap = read_cap(config, "final_logit_softcapping", 30.0);
  const int64_t window = config.size_or("sliding_window", 4096, kMaxPositions);
  model.sliding_window = window_per_layer(config, model.num_layers, window, 0);
  if (!config.has("layer_types")) {
    for (int64_t layer = 1; layer < model.num_layers; layer += 2) model.sliding_window[layer] = 0;
  }
  return model;
}

/// Two embeddings: of layers that see everything, and of those with a window.
void read_two_ropes(const ConfigReader& config, const DecoderDefaults& defaults,
                    ModelConfig& model) {
  DecoderDefaults of_windows = defaults;
  of_windows.rope_theta = config.number_or("rope_local_base_freq", 10000.0);
  const Json* parameters = config.value("rope_parameters");
  if (!parameters || !parameters->is_object() || !parameters->contains("full_attention")) {
    RopeConfig rope;
    rope.theta = of_windows.rope_theta;
    model.window_rope = rope;
    return;
  }
  const auto read = [&](const std::string& kind, const DecoderDefaults& fallback) {
    const Json none = Json::object();
    const auto found = parameters->find(kind);
    return parse_rope_parameters(
        ConfigReader(found == parameters->end() ? none : *found, "rope_parameters." + kind + "."),
        model, fallback);
  };
  model.rope = read("full_attention", defaults);
  model.window_rope = read("sliding_attention", of_windows);
}

ModelConfig parse_gemma3(const Json& config_json) {
  const DecoderDefaults defaults{.rope_theta = 1e6, .max_positions = 131072};
  ModelConfig model = parse_any_gemma(config_json, "gemma3_text", defaults);
  const ConfigReader config(config_json);
  read_second_generation(config, model);
  model.qk_norm = true;
  model.attention_softcap = read_cap(config, "attn_logit_softcapping", 0.0);
  model.logit_softcap = read_cap(config, "final_logit_softcapping", 0.0);
  const int64_t window = config.size_or("sliding_window", 4096, kMaxPositions);
  model.sliding_window = window_per_layer(config, model.num_layers, window, 0);
  if (!config.has("layer_types")) {
    const int64_t pattern = config.size_or("sliding_window_pattern", 6, kMaxLayers);
    for (int64_t layer = pattern - 1; layer < model.num_layers; layer += pattern)
      model.sliding_window[layer] = 0;
  }
  read_two_ropes(config, defaults, model);
  return model;
}

std::vector<ParamSpec> gemma_parameters(const ModelConfig& config) {
  return decoder_parameters(config, {});
}

std::vector<ParamSpec> gemma2_parameters(const ModelConfig& config) {
  return decoder_parameters(config, {.post_attention_norm = "post_attention_layernorm",
                                     .mlp_norm = "pre_feedforward_layernorm",
                                     .post_mlp_norm = "post_feedforward_layernorm"});
}

}  // namespace

bool embedding_noise_is_last(const ModelConfig& config) { return config.family == "gemma3_text"; }

Family gemma_family() {
  return {"gemma",     {"gemma"},        {"GemmaForCausalLM"},
          parse_gemma, gemma_parameters, rotary_buffer_names()};
}

Family gemma2_family() {
  return {"gemma2",     {"gemma2"},        {"Gemma2ForCausalLM"},
          parse_gemma2, gemma2_parameters, rotary_buffer_names()};
}

Family gemma3_text_family() {
  return {"gemma3_text", {"gemma3_text"},   {"Gemma3ForCausalLM"},
          parse_gemma3,  gemma2_parameters, rotary_buffer_names()};
}

}  // namespace danlu::arch
