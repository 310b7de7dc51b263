// Llama-4's text models: attention within chunks and, in some layers, without rotary embedding;
// one expert for each token, which takes its input times the router's score, and one for all.
#include <algorithm>

#include "arch/decoder.h"
#include "arch/families/families.h"
#include "arch/gated_delta.h"
#include "arch/stacked_experts.h"
#include "arch/text_part.h"
#include "base/error.h"

namespace danlu::arch {
namespace {

/// Numbers of the layers without rotary embedding.
std::vector<int64_t> unrotated(const ConfigReader& config, int64_t num_layers) {
  std::vector<int64_t> rotates = config.integers("no_rope_layers");  // 1: it does
  if (rotates.empty()) {
    const int64_t interval = config.size_or("no_rope_layer_interval", 4, kMaxLayers);
    for (int64_t layer = 0; layer < num_layers; ++layer)
      rotates.push_back((layer + 1) % interval != 0);
  }
  if (static_cast<int64_t>(rotates.size()) != num_layers) {
    throw ModelError(tr("[config.json] no_rope_layers must have one entry per layer ({}), got {}",
                        num_layers, rotates.size()));
  }
  std::vector<int64_t> layers;
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    if (rotates[static_cast<size_t>(layer)] == 0) layers.push_back(layer);
  }
  return layers;
}

/// What sees everything and what is not rotated are the same layers in every published model.
void check_layer_types(const ConfigReader& config, const ModelConfig& model) {
  const auto kinds = config.texts("layer_types");
  if (!kinds) return;
  const auto& full = model.unrotated_layers;
  for (int64_t layer = 0; layer < model.num_layers; ++layer) {
    const bool is_full = std::find(full.begin(), full.end(), layer) != full.end();
    const std::string expected = is_full ? "full_attention" : "chunked_attention";
    const auto at = static_cast<size_t>(layer);
    if (at < kinds->size() && (*kinds)[at] == expected) continue;
    throw ModelError(
        tr("[config.json] layer_types[{}] must be {}, as no_rope_layers has it", layer, expected));
  }
}

/// A switch that some published files give as a number.
bool is_on(const ConfigReader& config, std::string_view key) {
  const Json* value = config.value(key);
  if (value && value->is_number()) return config.number_or(key, 1) != 0;
  return config.boolean_or(key, true);
}

ExpertConfig experts_of(const ConfigReader& config, const ModelConfig& model, int64_t ffn_size) {
  ExpertConfig experts;
  std::vector<int64_t> layers = config.integers("moe_layers");
  if (layers.empty()) {
    const int64_t step = config.size_or("interleave_moe_layer_step", 1, kMaxLayers);
    for (int64_t layer = step - 1; layer < model.num_layers; layer += step) layers.push_back(layer);
  }
  if (layers.empty()) return experts;
  experts.sparse_layer.assign(static_cast<size_t>(model.num_layers), false);
  for (const int64_t layer : layers) {
    if (layer < 0 || layer >= model.num_layers) {
      throw ModelError(tr("[config.json] moe_layers must name layers from 0 to {}, got {}",
                          model.num_layers - 1, layer));
    }
    experts.sparse_layer[static_cast<size_t>(layer)] = true;
  }
  experts.count = config.required_size("num_local_experts", kMaxExperts);
  experts.per_token = config.size_or("num_experts_per_tok", 1, kMaxExperts);
  experts.ffn_size = experts.shared_ffn_size = ffn_size;
  experts.score = RouterScore::kSigmoid;
  experts.scales_input = true;
  experts.aux_loss_coef = config.number("router_aux_loss_coef");
  return experts;
}

/// The text model's own config.json. The hub's files are those of a model that sees pictures, which
/// has the text model's keys in text_config.
Json text_keys(const Json& config_json) {
  const auto nested = config_json.find("text_config");
  if (config_json.value("model_type", "") != "llama4" || nested == config_json.end() ||
      !nested->is_object())
    return config_json;
  Json keys = *nested;
  for (const char* key : {"torch_dtype", "dtype", "bos_token_id", "eos_token_id", "pad_token_id",
                          "tie_word_embeddings", "quantization_config"}) {
    if (config_json.contains(key) && !keys.contains(key)) keys[key] = config_json.at(key);
  }
  keys["model_type"] = "llama4_text";
  keys["architectures"] = {"Llama4ForCausalLM"};
  return keys;
}

ModelConfig parse_llama4_text(const Json& whole_json) {
  const Json config_json = text_keys(whole_json);
  ModelConfig model =
      parse_decoder(config_json, "llama4_text",
                    {.norm_eps = 1e-5, .rope_theta = 500000.0, .max_positions = 131072});
  const ConfigReader config(config_json);
  model.default_template = "llama4";
  model.rope.is_pairwise = true;
  model.qkv_bias = model.o_bias = config.boolean_or("attention_bias", false);
  model.experts = experts_of(config, model, model.ffn_size);
  model.ffn_size = config.size_or("intermediate_size_mlp", 16384, kMaxFfn);
  const bool has_no_chunks =
      config.mentions("attention_chunk_size") && !config.has("attention_chunk_size");
  if (!has_no_chunks)
    model.attention_chunk = config.size_or("attention_chunk_size", 8192, kMaxPositions);
  model.unrotated_layers = unrotated(config, model.num_layers);
  check_layer_types(config, model);
  model.norms_rotated = config.boolean_or("use_qk_norm", true);
  if (is_on(config, "attn_temperature_tuning")) {
    model.query_growth = config.number_or("attn_scale", 0.1);
    model.query_growth_from = config.number_or("floor_scale", 8192.0);
    if (model.query_growth_from <= 0) {
      throw ModelError(tr("[config.json] floor_scale must be a positive number, got {}",
                          model.query_growth_from));
    }
  }
  return model;
}

std::vector<ParamSpec> llama4_parameters(const ModelConfig& config) {
  return decoder_parameters(config, {.gate = "feed_forward.gate_proj",
                                     .up = "feed_forward.up_proj",
                                     .down = "feed_forward.down_proj",
                                     .router = "feed_forward.router",
                                     .expert = "feed_forward.experts.",
                                     .shared_expert = "feed_forward.shared_expert."});
}

}  // namespace

bool stacks_experts(const ModelConfig& config) {
  return config.family == "llama4_text" || config.family == "qwen3_5_moe_text";
}

bool turns_stacked_experts(const ModelConfig& config) { return config.family == "llama4_text"; }

std::optional<TextPart> text_part_of(const ModelConfig& config) {
  if (gates_attention(config)) {
    return TextPart{.begins = "model.language_model.",
                    .others = {"model.visual.", "mtp."},
                    .instead = "model."};
  }
  if (config.family != "llama4_text") return std::nullopt;
  return TextPart{.begins = "language_model.",
                  .others = {"vision_model.", "multi_modal_projector."}};
}

Family llama4_text_family() {
  return {"llama4_text",
          {"llama4_text", "llama4"},
          {"Llama4ForCausalLM", "Llama4ForConditionalGeneration"},
          parse_llama4_text,
          llama4_parameters,
          rotary_buffer_names()};
}

}  // namespace danlu::arch
