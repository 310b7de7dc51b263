// BLOOM: layer norms with biases, one of them after the embedding, ALiBi, queries, keys and values
// of each head beside one another, an MLP without a gate.
#include <utility>

#include "arch/decoder.h"
#include "arch/families/families.h"
#include "base/error.h"

namespace danlu::arch {
namespace {

/// The same settings under the keys that most families have. Published files name the width
/// n_embed, which counts before hidden_size.
Json bloom_usual_keys(const Json& config_json) {
  const ConfigReader config(config_json);
  Json usual = config_json;
  for (const auto& [theirs, key] :
       {std::pair("n_embed", "hidden_size"), std::pair("layer_norm_epsilon", "rms_norm_eps"),
        std::pair("seq_length", "max_position_embeddings")}) {
    if (const Json* value = config.value(theirs)) usual[key] = *value;
  }
  for (const auto& [theirs, key] :
       {std::pair("n_layer", "num_hidden_layers"), std::pair("n_head", "num_attention_heads")}) {
    const Json* value = config.value(theirs);
    if (value && !config.value(key)) usual[key] = *value;
  }
  usual["intermediate_size"] = 4 * ConfigReader(usual).required_size("hidden_size", kMaxWidth);
  for (const char* other : {"num_key_value_heads", "head_dim", "hidden_act"}) usual.erase(other);
  return usual;
}

ModelConfig parse_bloom(const Json& config_json) {
  if (ConfigReader(config_json).boolean_or("apply_residual_connection_post_layernorm", false)) {
    throw ModelError(
        tr("[config.json] {} must be false, got true", "apply_residual_connection_post_layernorm"));
  }
  ModelConfig model = parse_decoder(bloom_usual_keys(config_json), "bloom",
                                    {.norm_eps = 1e-5, .tie_embeddings = true});
  model.raw = config_json;
  model.qkv_layout = QkvLayout::kInterleaved;
  model.qkv_bias = model.o_bias = model.mlp_bias = true;
  model.norm = NormKind::kLayer;
  model.norms_embedding = true;
  model.activation = Activation::kGeluTanh;
  model.is_gated = false;
  model.alibi = true;
  model.rope.enabled = false;
  return model;
}

std::vector<ParamSpec> bloom_parameters(const ModelConfig& config) {
  return decoder_parameters(config, {.embedding = "transformer.word_embeddings",
                                     .embedding_norm = "transformer.word_embeddings_layernorm",
                                     .layer = "transformer.h.",
                                     .qkv = "self_attention.query_key_value",
                                     .o = "self_attention.dense",
                                     .up = "mlp.dense_h_to_4h",
                                     .down = "mlp.dense_4h_to_h",
                                     .final_norm = "transformer.ln_f"});
}

}  // namespace

Family bloom_family() {
  return {"bloom", {"bloom"},     {"BloomForCausalLM", "BloomModel"}, parse_bloom, bloom_parameters,
          {},      "transformer."};
}

}  // namespace danlu::arch
