// Qwen3-Next and the text part of Qwen3.5: three of four layers have linear attention by the gated
// delta rule, the fourth has attention with an output gate; norms of 1 + w, a quarter of a head is
// rotated, experts beside one that every token passes.
#include <algorithm>

#include "arch/decoder.h"
#include "arch/families/families.h"
#include "arch/gated_delta.h"
#include "base/error.h"

namespace danlu::arch {
namespace {

constexpr const char *kNext = "qwen3_next", *kDense = "qwen3_5_text", *kMoe = "qwen3_5_moe_text";

bool is_hybrid(const ModelConfig& config) {
  return config.family == kNext || config.family == kDense || config.family == kMoe;
}

/// Which layers have linear attention.
std::vector<bool> linear_layers(const ConfigReader& config, int64_t num_layers) {
  std::vector<bool> layers;
  const auto kinds = config.texts("layer_types");
  if (!kinds) {
    const int64_t interval = config.size_or("full_attention_interval", 4, kMaxLayers);
    for (int64_t layer = 0; layer < num_layers; ++layer)
      layers.push_back((layer + 1) % interval != 0);
    return layers;
  }
  if (static_cast<int64_t>(kinds->size()) != num_layers) {
    throw ModelError(tr("[config.json] layer_types must have one entry per layer ({}), got {}",
                        num_layers, kinds->size()));
  }
  for (const std::string& kind : *kinds) {
    if (kind != "linear_attention" && kind != "full_attention") {
      throw ModelError(
          tr("[config.json] layer_types must be linear_attention or full_attention, got {}", kind));
    }
    layers.push_back(kind == "linear_attention");
  }
  return layers;
}

GatedDelta delta_of(const ModelConfig& model) {
  const ConfigReader config(model.raw);
  GatedDelta delta;
  delta.key_heads = config.size_or("linear_num_key_heads", 16, kMaxHeads);
  delta.value_heads = config.size_or("linear_num_value_heads", 32, kMaxHeads);
  delta.key_dim = config.size_or("linear_key_head_dim", 128, kMaxWidth);
  delta.value_dim = config.size_or("linear_value_head_dim", 128, kMaxWidth);
  delta.kernel = config.size_or("linear_conv_kernel_dim", 4, 64);
  delta.joins_inputs = model.family == kNext;
  if (delta.value_heads % delta.key_heads != 0) {
    throw ModelError(
        tr("[config.json] linear_num_key_heads={} must divide linear_num_value_heads={}",
           delta.key_heads, delta.value_heads));
  }
  return delta;
}

/// The text model's own config.json, of files of the model that sees pictures too.
Json keys_of_text(const Json& config_json, const char* model_type, const char* architecture) {
  const auto nested = config_json.find("text_config");
  if (nested == config_json.end() || !nested->is_object()) return config_json;
  Json keys = *nested;
  for (const char* key : {"torch_dtype", "dtype", "bos_token_id", "eos_token_id", "pad_token_id",
                          "quantization_config"}) {
    if (config_json.contains(key) && !keys.contains(key)) keys[key] = config_json.at(key);
  }
  // The head is the whole model's.
  if (config_json.contains("tie_word_embeddings"))
    keys["tie_word_embeddings"] = config_json.at("tie_word_embeddings");
  keys["model_type"] = model_type;
  keys["architectures"] = {architecture};
  return keys;
}

/// What parse_decoder() reads. Positions of a text are the same in time, height and width, so that
/// what divides a head among the three means nothing.
Json plain_keys(const Json& keys) {
  Json plain = keys;
  for (const char* rope : {"rope_parameters", "rope_scaling"}) {
    const auto found = plain.find(rope);
    if (found == plain.end() || !found->is_object()) continue;
    for (const char* key : {"mrope_section", "mrope_interleaved"}) found->erase(key);
    for (const char* key : {"rope_type", "type"}) {
      if (found->value(key, "") == "mrope") (*found)[key] = "default";
    }
  }
  // Models of experts alone have no width of a dense layer.
  if (!plain.contains("intermediate_size") && plain.contains("moe_intermediate_size"))
    plain["intermediate_size"] = plain.at("moe_intermediate_size");
  return plain;
}

ModelConfig parse_hybrid(const Json& keys, const char* family) {
  const Json plain = plain_keys(keys);
  ModelConfig model = parse_decoder(
      plain, family,
      {.norm_eps = 1e-6, .max_positions = 32768, .head_dim = 256, .partial_rotary = 0.25});
  model.raw = keys;
  const ConfigReader config(model.raw);
  if (!config.boolean_or("attn_output_gate", true))
    throw ModelError(tr("[config.json] attn_output_gate must be true, got false"));
  model.norm = NormKind::kRmsOffset;
  model.qkv_bias = model.o_bias = config.boolean_or("attention_bias", false);
  model.qk_norm = true;
  model.default_template = "qwen3";
  linear_layers(config, model.num_layers);  // both are read whenever they are asked for
  delta_of(model);
  return model;
}

void read_experts(ModelConfig& model) {
  const ConfigReader config(model.raw);
  model.experts = parse_qwen_experts(config, model.num_layers);
  model.experts.norm_topk = config.boolean_or("norm_topk_prob", true);
  model.experts.shared_ffn_size = config.required_size("shared_expert_intermediate_size", kMaxFfn);
  model.experts.shared_gate = true;
}

ModelConfig parse_next(const Json& config_json) {
  ModelConfig model = parse_hybrid(config_json, kNext);
  if (ConfigReader(model.raw).integer("num_experts").value_or(1) > 0) read_experts(model);
  return model;
}

ModelConfig parse_dense(const Json& config_json) {
  return parse_hybrid(keys_of_text(config_json, kDense, "Qwen3_5ForCausalLM"), kDense);
}

ModelConfig parse_moe(const Json& config_json) {
  ModelConfig model = parse_hybrid(keys_of_text(config_json, kMoe, "Qwen3_5MoeForCausalLM"), kMoe);
  read_experts(model);
  model.experts.norm_topk = true;
  return model;
}

std::vector<ParamSpec> hybrid_parameters(const ModelConfig& config) {
  return decoder_parameters(config, {});
}

/// What stands beside the text model in files: layers that predict further ahead.
std::vector<std::string> ignored_names() {
  std::vector<std::string> names = rotary_buffer_names();
  names.push_back(R"(mtp\..+)");
  return names;
}

}  // namespace

std::optional<GatedDelta> gated_delta_of(const ModelConfig& config, int64_t layer) {
  if (!is_hybrid(config)) return std::nullopt;
  const ConfigReader reader(config.raw);
  // A plan may look at fewer layers than the model has.
  const std::vector<bool> layers =
      linear_layers(reader, reader.size_or("num_hidden_layers", config.num_layers, kMaxLayers));
  const auto at = static_cast<size_t>(layer);
  if (at >= layers.size() || !layers[at]) return std::nullopt;
  return delta_of(config);
}

bool has_gated_delta(const ModelConfig& config) {
  return is_hybrid(config) && count_key_layers(config) < config.num_layers;
}

int64_t place_of_key_layer(const ModelConfig& config, int64_t layer) {
  if (!is_hybrid(config)) return layer;
  const ConfigReader reader(config.raw);
  const std::vector<bool> layers =
      linear_layers(reader, reader.size_or("num_hidden_layers", config.num_layers, kMaxLayers));
  const auto past = layers.begin() + std::min<int64_t>(layer, std::ssize(layers));
  return std::count(layers.begin(), past, false);
}

int64_t count_key_layers(const ModelConfig& config) {
  return place_of_key_layer(config, config.num_layers);
}

void require_whole_sequences(const ModelConfig& config, int64_t context_ranks) {
  if (context_ranks <= 1 || !has_gated_delta(config)) return;
  throw UsageError(
      tr("[parallel] {} context-parallel ranks: a model of {} has linear attention, which reads a "
         "sequence in turn, and its ranks do not hand it on yet",
         context_ranks, config.family),
      tr("more ranks share the work by data, pipeline or expert parallelism"));
}

int64_t state_bytes(const ModelConfig& config, int64_t element_bytes) {
  if (!has_gated_delta(config)) return 0;
  const GatedDelta delta = delta_of(config);
  const int64_t layers = config.num_layers - count_key_layers(config);
  return layers * (4 * delta.values() * delta.key_dim +
                   element_bytes * (delta.kernel - 1) * delta.channels());
}

bool gates_attention(const ModelConfig& config) { return is_hybrid(config); }

void add_gated_delta(const ModelConfig& config, const GatedDelta& delta, ParameterList& list) {
  using Names = GatedDeltaNames;
  // No rank of the tensor axis has a part: require_divides() refuses the axis.
  const auto linear = [&](const char* name, int64_t rows) {
    list.weight(Role::kOwn, name, {rows, config.hidden_size}, Cut::kCopiedInside);
  };
  list.vector(Role::kOwn, Names::kDecayBias, delta.value_heads, Cut::kCopiedInside);
  list.vector(Role::kOwn, Names::kDecayRate, delta.value_heads, Cut::kCopiedInside);
  list.weight(Role::kOwn, Names::kConvolution, {delta.channels(), 1, delta.kernel},
              Cut::kCopiedInside);
  if (delta.joins_inputs) {
    linear(Names::kJoinedInputs, delta.channels() + delta.values());
    linear(Names::kJoinedSteps, 2 * delta.value_heads);
  } else {
    linear(Names::kInputs, delta.channels());
    linear(Names::kGate, delta.values());
    linear(Names::kStep, delta.value_heads);
    linear(Names::kDecay, delta.value_heads);
  }
  list.weight(Role::kOwn, Names::kNorm, {delta.value_dim}, Cut::kCopiedInside);
  list.weight(Role::kO, Names::kOut, {config.hidden_size, delta.values()}, Cut::kColumns);
}

Family qwen3_next_family() {
  return {kNext, {kNext}, {"Qwen3NextForCausalLM"}, parse_next, hybrid_parameters, ignored_names()};
}

Family qwen3_5_text_family() {
  return {
      kDense,      {kDense, "qwen3_5"}, {"Qwen3_5ForCausalLM", "Qwen3_5ForConditionalGeneration"},
      parse_dense, hybrid_parameters,   ignored_names()};
}

Family qwen3_5_moe_text_family() {
  return {kMoe,
          {kMoe, "qwen3_5_moe"},
          {"Qwen3_5MoeForCausalLM", "Qwen3_5MoeForConditionalGeneration"},
          parse_moe,
          hybrid_parameters,
          ignored_names()};
}

}  // namespace danlu::arch
