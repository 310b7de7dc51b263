#include "arch/decoder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "arch/gated_delta.h"
#include "arch/layer_kind.h"
#include "arch/learned_positions.h"
#include "arch/parameter_list.h"
#include "base/error.h"
#include "base/json.h"
#include "base/lower_case.h"

namespace danlu::arch {
namespace {

bool is_one_of(const std::string& text, std::initializer_list<std::string_view> choices) {
  return std::find(choices.begin(), choices.end(), text) != choices.end();
}

/// FP8 with a factor for each block (DeepSeek-V3, Qwen3) or for each matrix.
bool is_read_fp8(const ConfigReader& reader) {
  const auto block = reader.integers("weight_block_size");
  return reader.text("fmt").value_or("e4m3") == "e4m3" &&
         (block.empty() || block == std::vector<int64_t>{128, 128});
}

/// compressed-tensors, where its weights alone are changed: not pruned in its sparse formats.
bool is_read_compressed(const ConfigReader& reader) {
  const Json* const sparsity = reader.value("sparsity_config");
  const bool is_dense = !sparsity || !sparsity->is_object() || sparsity->empty() ||
                        json_get<std::string>(*sparsity, "format").value_or("dense") == "dense";
  return is_dense &&
         is_one_of(reader.text("format").value_or("?"),
                   {"pack-quantized", "float-quantized", "naive-quantized", "int-quantized"});
}

/// What is dequantised as it is read (weights/hf/packed_weights.h, weights/hf/block_scales.h).
bool is_dequantised(const Json& quantisation) {
  const ConfigReader reader(quantisation, "quantization_config.");
  const std::string method = reader.text("quant_method").value_or("?");
  const int64_t bits = reader.integer("bits").value_or(reader.integer("w_bit").value_or(4));
  if (method == "gptq") {
    return (bits == 2 || bits == 3 || bits == 4 || bits == 8) &&
           is_one_of(reader.text("checkpoint_format").value_or("gptq"), {"gptq", "gptq_v2"});
  }
  if (method == "awq")
    return bits == 4 && lower_case(reader.text("version").value_or("gemm")) == "gemm";
  if (method == "compressed-tensors") return is_read_compressed(reader);
  return method == "fp8" && is_read_fp8(reader);
}

/// bitsandbytes' NF4, as its files are read (weights/hf/nf4_tensors.h). Without a type it is FP4.
bool is_nf4(const Json& quantisation) {
  const ConfigReader reader(quantisation, "quantization_config.");
  return reader.text("quant_method") == "bitsandbytes" &&
         reader.boolean_or("load_in_4bit", false) && reader.text("bnb_4bit_quant_type") == "nf4" &&
         reader.text("bnb_4bit_quant_storage").value_or("uint8") == "uint8";
}

/// What of a method that is known makes its files be packed in another way.
std::string packed_otherwise(const ConfigReader& quantisation, const std::string& method) {
  const auto text = [&](const char* key) {
    const Json* const value = quantisation.value(key);
    return value ? fmt::format("{} {}", key, value->dump()) : std::string();
  };
  std::vector<std::string> found;
  if (method == "gptq") found = {text("bits"), text("checkpoint_format")};
  if (method == "awq") found = {text("bits"), text("version")};
  if (method == "compressed-tensors") found = {text("format"), text("sparsity_config")};
  if (method == "fp8") found = {text("fmt"), text("weight_block_size")};
  std::erase(found, "");
  return fmt::format("{}", fmt::join(found, ", "));
}

[[noreturn]] void refuse_quantised(const ConfigReader& quantisation) {
  const std::string method = quantisation.text("quant_method").value_or("?");
  const bool is_4bit = method == "bitsandbytes" && quantisation.boolean_or("load_in_4bit", false);
  if (is_4bit) {
    throw ModelError(tr("[config.json] bitsandbytes' 4-bit weights are read as bnb_4bit_quant_type "
                        "\"nf4\" in bnb_4bit_quant_storage \"uint8\", got \"{}\" in \"{}\"",
                        quantisation.text("bnb_4bit_quant_type").value_or("fp4"),
                        quantisation.text("bnb_4bit_quant_storage").value_or("uint8")),
                     tr("use the unquantised release of the model"));
  }
  const std::string otherwise = packed_otherwise(quantisation, method);
  throw ModelError(
      otherwise.empty()
          ? tr("[config.json] quantised weights ({}) are not supported", method)
          : tr("[config.json] quantised weights ({}, {}) are not supported", method, otherwise),
      tr("gptq of 2, 3, 4 or 8 bits, awq (gemm), compressed-tensors (pack-quantized, "
         "float-quantized, int-quantized), fp8 (e4m3, blocks of 128) and bitsandbytes' nf4 are "
         "read; otherwise use the unquantised release of the model"));
}

void refuse_what_changes_the_maths(const ConfigReader& config, const DecoderDefaults& defaults) {
  const std::string activation = config.text("hidden_act").value_or("silu");
  if (!defaults.knows_gelu && activation != "silu" && activation != "swish") {
    throw ModelError(tr("[config.json] hidden_act must be silu, got \"{}\"", activation));
  }
  const Json* quantisation = config.value("quantization_config");
  if (!quantisation) quantisation = config.value("compression_config");
  if (quantisation && !is_dequantised(*quantisation) && !is_nf4(*quantisation))
    refuse_quantised(ConfigReader(*quantisation, "quantization_config."));
}

DType parse_dtype(const ConfigReader& config) {
  const auto name = config.text(config.has("dtype") ? "dtype" : "torch_dtype");
  if (!name) return DType::kF32;
  try {
    return dtype_from_name(*name);
  } catch (const ModelError&) {
    throw ModelError(tr("[config.json] torch_dtype \"{}\" is not a known element type", *name));
  }
}

/// Negative ids are how some exporters write "none".
std::optional<int64_t> parse_id(const ConfigReader& config, std::string_view key) {
  const auto ids = config.integers(key);
  if (ids.empty() || ids.front() < 0) return std::nullopt;
  return ids.front();
}

}  // namespace

ModelConfig parse_decoder(const Json& config_json, std::string family,
                          const DecoderDefaults& defaults) {
  const ConfigReader config(config_json);
  refuse_what_changes_the_maths(config, defaults);
  ModelConfig model;
  model.family = std::move(family);
  model.raw = config_json;
  model.vocab_size = config.required_size("vocab_size", kMaxVocab);
  model.hidden_size = config.required_size("hidden_size", kMaxWidth);
  model.num_layers = config.required_size("num_hidden_layers", kMaxLayers);
  model.num_heads = config.required_size("num_attention_heads", kMaxHeads);
  model.ffn_size = config.required_size("intermediate_size", kMaxFfn);
  model.num_kv_heads = config.size_or("num_key_value_heads", model.num_heads, kMaxHeads);
  model.head_dim = config.size_or("head_dim", defaults.head_dim, kMaxWidth);
  if (model.head_dim == 0) {
    if (model.hidden_size % model.num_heads != 0) {
      throw ModelError(
          tr("[config.json] num_attention_heads={} must divide hidden_size={} where "
             "head_dim is not given",
             model.num_heads, model.hidden_size));
    }
    model.head_dim = model.hidden_size / model.num_heads;
  }
  model.max_positions =
      config.size_or("max_position_embeddings", defaults.max_positions, kMaxPositions);
  model.norm_eps = config.number_or("rms_norm_eps", defaults.norm_eps);
  model.rope = parse_rope(config, model, defaults);
  model.tie_embeddings = config.boolean_or("tie_word_embeddings", defaults.tie_embeddings);
  model.initializer_range = config.number_or("initializer_range", 0.02);
  model.dtype = parse_dtype(config);
  for (const int64_t id : config.integers("eos_token_id")) {
    if (id >= 0) model.eos_ids.push_back(id);
  }
  model.bos_id = parse_id(config, "bos_token_id");
  model.pad_id = parse_id(config, "pad_token_id");
  model.sliding_window.assign(static_cast<size_t>(model.num_layers), 0);
  return model;
}

Activation parse_activation(std::string_view key, const std::string& name) {
  if (name == "silu" || name == "swish") return Activation::kSilu;
  if (name == "gelu") return Activation::kGelu;
  if (name == "gelu_pytorch_tanh" || name == "gelu_new" || name == "gelu_fast")
    return Activation::kGeluTanh;
  throw ModelError(
      tr("[config.json] {} must be silu, gelu or gelu_pytorch_tanh, got \"{}\"", key, name));
}

std::vector<int64_t> window_per_layer(const ConfigReader& config, int64_t num_layers,
                                      int64_t window, int64_t first_layer) {
  std::vector<int64_t> windows(static_cast<size_t>(num_layers), 0);
  const auto kinds = config.texts("layer_types");
  if (!kinds) {
    for (int64_t layer = std::max<int64_t>(first_layer, 0); layer < num_layers; ++layer)
      windows[layer] = window;
    return windows;
  }
  if (static_cast<int64_t>(kinds->size()) != num_layers) {
    throw ModelError(tr("[config.json] layer_types must have one entry per layer ({}), got {}",
                        num_layers, kinds->size()));
  }
  for (size_t layer = 0; layer < kinds->size(); ++layer) {
    const std::string& kind = (*kinds)[layer];
    if (kind == "full_attention") continue;
    if (kind != "sliding_attention") {
      throw ModelError(tr(
          "[config.json] layer_types[{}] must be full_attention or sliding_attention, got \"{}\"",
          layer, kind));
    }
    if (window == 0) {
      throw ModelError(tr(
          "[config.json] layer_types[{}] is sliding_attention, but sliding_window is off", layer));
    }
    windows[layer] = window;
  }
  return windows;
}

std::vector<int64_t> qwen_windows(const ConfigReader& config, int64_t num_layers) {
  // The key sliding_window alone means nothing: published files carry it switched off.
  const bool slides = config.boolean_or("use_sliding_window", false);
  const bool is_null = config.mentions("sliding_window") && !config.has("sliding_window");
  const int64_t window =
      slides && !is_null ? config.size_or("sliding_window", 4096, kMaxPositions) : 0;
  return window_per_layer(config, num_layers, window,
                          config.integer("max_window_layers").value_or(28));
}

namespace {

/// Each rank makes both short vectors whole, and of them its own heads. Only those matrices that
/// read the hidden state have biases.
void add_latent_attention(const ModelConfig& c, const DecoderNames& names, ParameterList& list) {
  const LatentConfig& l = *c.latent;
  const int64_t q_rows = c.num_heads * c.head_dim;
  if (l.q_rank > 0) {
    list.linear(Role::kQDown, names.q_down, l.q_rank, c.hidden_size, Cut::kCopiedInside,
                c.qkv_bias);
    list.weight(Role::kQDownNorm, names.q_down_norm, {l.q_rank}, Cut::kCopiedInside);
    list.weight(Role::kQ, names.q_up, {q_rows, l.q_rank}, Cut::kRows);
  } else {
    list.weight(Role::kQ, names.q, {q_rows, c.hidden_size}, Cut::kRows);
  }
  list.linear(Role::kKvDown, names.kv_down, l.kv_rank + l.rope_dim, c.hidden_size,
              Cut::kCopiedInside, c.qkv_bias);
  list.weight(Role::kKvDownNorm, names.kv_down_norm, {l.kv_rank}, Cut::kCopiedInside);
  list.weight(Role::kKvUp, names.kv_up, {c.num_heads * (l.nope_dim + l.v_dim), l.kv_rank},
              Cut::kRows);
  list.linear(Role::kO, names.o, c.hidden_size, c.num_heads * l.v_dim, Cut::kColumns, c.o_bias);
}

void add_decoder_norm(const ModelConfig& c, Role role, const std::string& name,
                      ParameterList& list) {
  list.weight(role, name, {c.hidden_size}, Cut::kCopiedBetween);
  if (c.norm == NormKind::kLayer) list.bias(role, name, c.hidden_size, Cut::kCopiedBetween);
}

void add_attention(const ModelConfig& c, const DecoderNames& names, int64_t layer,
                   ParameterList& list) {
  if (c.latent) return add_latent_attention(c, names, list);
  if (const auto delta = gated_delta_of(c, layer)) return add_gated_delta(c, *delta, list);
  const int64_t q_rows = c.num_heads * c.head_dim, kv_rows = c.num_kv_heads * c.head_dim;
  if (c.qkv_layout == QkvLayout::kSeparate) {
    const int64_t gated_rows = gates_attention(c) ? 2 * q_rows : q_rows;
    list.linear(Role::kQ, names.q, gated_rows, c.hidden_size, Cut::kKvGroups, c.qkv_bias);
    list.linear(Role::kK, names.k, kv_rows, c.hidden_size, Cut::kKvGroups, c.qkv_bias);
    list.linear(Role::kV, names.v, kv_rows, c.hidden_size, Cut::kKvGroups, c.qkv_bias);
  } else {
    list.linear(Role::kQkv, names.qkv, q_rows + 2 * kv_rows, c.hidden_size, Cut::kKvGroups,
                c.qkv_bias);
  }
  list.linear(Role::kO, names.o, c.hidden_size, q_rows, Cut::kColumns, c.o_bias);
  if (c.qk_norm) {
    list.weight(Role::kQNorm, names.q_norm, {c.head_dim}, Cut::kCopiedInside);
    list.weight(Role::kKNorm, names.k_norm, {c.head_dim}, Cut::kCopiedInside);
  }
}

void add_dense_mlp(const ModelConfig& c, const DecoderNames& names, ParameterList& list) {
  if (!c.is_gated) {
    list.linear(Role::kUp, names.up, c.ffn_size, c.hidden_size, Cut::kRows, c.mlp_bias);
  } else if (c.joins_gate_up) {
    list.linear(Role::kGateUp, names.gate_up, 2 * c.ffn_size, c.hidden_size, Cut::kHalves,
                c.mlp_bias);
  } else {
    list.linear(Role::kGate, names.gate, c.ffn_size, c.hidden_size, Cut::kRows, c.mlp_bias);
    list.linear(Role::kUp, names.up, c.ffn_size, c.hidden_size, Cut::kRows, c.mlp_bias);
  }
  list.linear(Role::kDown, names.down, c.hidden_size, c.ffn_size, Cut::kColumns, c.mlp_bias);
}

/// Every rank routes alike, but has a part of what experts give, and so of the router's gradient.
/// An expert is cut as a dense MLP is. Which rank owns which expert is decided by ParamSpec::expert
/// where experts are placed.
void add_experts(const ModelConfig& c, const DecoderNames& names, ParameterList& list) {
  const ExpertConfig& e = c.experts;
  list.weight(Role::kRouter, names.router, {e.count, c.hidden_size}, Cut::kCopiedInside);
  if (e.has_choice_bias)
    list.vector(Role::kRouterBias, names.router_bias, e.count, Cut::kCopiedInside);
  for (int64_t expert = 0; expert < e.count; ++expert) {
    ParameterList one = list.within(names.expert + std::to_string(expert) + ".", expert);
    one.weight(Role::kExpertGate, names.expert_gate, {e.ffn_size, c.hidden_size}, Cut::kRows);
    one.weight(Role::kExpertUp, names.expert_up, {e.ffn_size, c.hidden_size}, Cut::kRows);
    one.weight(Role::kExpertDown, names.expert_down, {c.hidden_size, e.ffn_size}, Cut::kColumns);
  }
  if (e.shared_ffn_size == 0) return;
  const int64_t width = e.shared_ffn_size;
  ParameterList shared = list.within(names.shared_expert);
  shared.weight(Role::kSharedGateProj, names.expert_gate, {width, c.hidden_size}, Cut::kRows);
  shared.weight(Role::kSharedUp, names.expert_up, {width, c.hidden_size}, Cut::kRows);
  shared.weight(Role::kSharedDown, names.expert_down, {c.hidden_size, width}, Cut::kColumns);
  if (e.shared_gate) {
    list.weight(Role::kSharedExpertGate, names.shared_expert_gate, {1, c.hidden_size},
                Cut::kCopiedInside);
  }
}

void add_decoder_layer(const ModelConfig& c, const DecoderNames& names, int64_t layer,
                       ParameterList& list) {
  if (const LayerKind* kind = c.own_kind(layer)) return kind->parameters(c, list);
  add_decoder_norm(c, Role::kAttentionNorm, names.attention_norm, list);
  add_attention(c, names, layer, list);
  if (c.has_post_norms)
    add_decoder_norm(c, Role::kPostAttentionNorm, names.post_attention_norm, list);
  add_decoder_norm(c, Role::kMlpNorm, names.mlp_norm, list);
  if (c.is_sparse(layer)) {
    add_experts(c, names, list);
  } else {
    add_dense_mlp(c, names, list);
  }
  if (c.has_post_norms) add_decoder_norm(c, Role::kPostMlpNorm, names.post_mlp_norm, list);
}

/// Its table and its head are the model's, of which files hold copies.
void add_prediction(const ModelConfig& c, const DecoderNames& names, int64_t layer,
                    std::vector<ParamSpec>& all) {
  ParameterList list(names.layer + std::to_string(layer) + ".", layer, all);
  const auto shared = [&](Role role, const std::string& name, const std::string& with) {
    list.weight(role, name, {c.vocab_size, c.hidden_size}, Cut::kRows);
    all.back().tied_to = with + ".weight";
  };
  shared(Role::kEmbedding, names.prediction_embedding, names.embedding);
  add_decoder_norm(c, Role::kPredictionTokenNorm, names.prediction_token_norm, list);
  add_decoder_norm(c, Role::kPredictionHiddenNorm, names.prediction_hidden_norm, list);
  list.weight(Role::kPredictionJoin, names.prediction_join, {c.hidden_size, 2 * c.hidden_size},
              Cut::kColumns);
  add_decoder_layer(c, names, layer, list);
  add_decoder_norm(c, Role::kPredictionNorm, names.prediction_norm, list);
  shared(Role::kHead, names.prediction_head, c.tie_embeddings ? names.embedding : names.head);
}

}  // namespace

std::vector<ParamSpec> decoder_parameters(const ModelConfig& c, const DecoderNames& names) {
  std::vector<ParamSpec> all;
  ParameterList outside("", -1, all);
  outside.weight(Role::kEmbedding, names.embedding, {c.vocab_size, c.hidden_size}, Cut::kRows);
  if (const int64_t rows = learned_positions(c)) {
    outside.weight(Role::kPositions, names.positions, {rows, c.hidden_size}, Cut::kCopiedBetween);
  }
  if (c.encoder) {
    outside.weight(Role::kTokenTypes, names.token_types, {c.encoder->token_types, c.hidden_size},
                   Cut::kCopiedBetween);
  }
  if (c.norms_embedding) add_decoder_norm(c, Role::kEmbeddingNorm, names.embedding_norm, outside);
  for (int64_t layer = 0; layer < c.num_layers; ++layer) {
    ParameterList list(names.layer + std::to_string(layer) + ".", layer, all);
    add_decoder_layer(c, names, layer, list);
  }
  if (!c.encoder) add_decoder_norm(c, Role::kFinalNorm, names.final_norm, outside);
  if (c.score) {
    if (c.encoder)
      outside.linear(Role::kScoreDense, c.encoder->dense, c.hidden_size, c.hidden_size,
                     Cut::kCopiedBetween, /*has_bias=*/true);
    outside.weight(Role::kScore, c.score->module(), {c.score->labels, c.hidden_size},
                   Cut::kCopiedBetween);
    if (c.score->has_bias())
      outside.bias(Role::kScore, c.score->module(), c.score->labels, Cut::kCopiedBetween);
    return all;
  }
  if (c.encoder) return all;
  outside.weight(Role::kHead, names.head, {c.vocab_size, c.hidden_size}, Cut::kRows);
  if (c.tie_embeddings) all.back().tied_to = all.front().name;
  if (c.head_bias) outside.bias(Role::kHead, names.head, c.vocab_size, Cut::kRows);
  for (int64_t depth = 0; depth < c.num_predictions(); ++depth)
    add_prediction(c, names, c.num_layers + depth, all);
  return all;
}

std::vector<std::string> rotary_buffer_names() {
  return {R"((model\.)?(layers\.\d+\.self_attn\.)?rotary_emb\.(inv_freq|cos_cached|sin_cached))"};
}

}  // namespace danlu::arch
