// ChatGLM2, ChatGLM3 and GLM-4 as their repositories have them: the arithmetic of glm under other
// names, q, k and v in one matrix, other keys in config.json.
#include <algorithm>
#include <utility>

#include "arch/decoder.h"
#include "arch/families/families.h"
#include "base/error.h"

namespace danlu::arch {
namespace {

void require_value(const ConfigReader& config, std::string_view key, bool value) {
  if (config.boolean_or(key, value) == value) return;
  throw ModelError(value ? tr("[config.json] {} must be true, got false", key)
                         : tr("[config.json] {} must be false, got true", key));
}

/// The same settings under the keys that most families have.
Json usual_keys(const Json& config_json) {
  const ConfigReader config(config_json);
  Json usual = config_json;
  for (const auto& [theirs, key] :
       {std::pair("num_layers", "num_hidden_layers"),
        std::pair("ffn_hidden_size", "intermediate_size"), std::pair("kv_channels", "head_dim"),
        std::pair("layernorm_epsilon", "rms_norm_eps"),
        std::pair("seq_length", "max_position_embeddings")}) {
    if (const Json* value = config.value(theirs)) usual[key] = *value;
  }
  // The tokenizer has fewer tokens than the table has rows.
  for (const char* key : {"padded_vocab_size", "vocab_size"}) {
    const Json* value = config.value(key);
    if (!value) continue;
    usual["vocab_size"] = *value;
    break;
  }
  usual.erase("num_key_value_heads");
  if (config.boolean_or("multi_query_attention", false))
    usual["num_key_value_heads"] = config.size_or("multi_query_group_num", 1, kMaxHeads);
  usual["rope_theta"] = 10000.0 * config.number_or("rope_ratio", 1.0);
  return usual;
}

ModelConfig parse_chatglm(const Json& config_json) {
  const ConfigReader config(config_json);
  require_value(config, "rmsnorm", true);
  require_value(config, "post_layer_norm", true);
  require_value(config, "apply_residual_connection_post_layernorm", false);
  if (config.has("pre_seq_len"))
    throw ModelError(tr("[config.json] a prefix encoder (pre_seq_len) is not supported"));
  ModelConfig model = parse_decoder(usual_keys(config_json), "chatglm", {.norm_eps = 1e-5});
  model.raw = config_json;
  if (model.head_dim % 4 != 0) {
    throw ModelError(
        tr("[config.json] kv_channels={} must be a multiple of 4: half of a head is rotated",
           model.head_dim));
  }
  model.rope.rotated_dims = model.head_dim / 2;
  model.rope.is_pairwise = true;
  model.qkv_layout = QkvLayout::kJoined;
  model.joins_gate_up = true;
  const bool biases = config.boolean_or("add_bias_linear", false);
  model.o_bias = model.mlp_bias = biases;
  model.qkv_bias = biases || config.boolean_or("add_qkv_bias", false);
  model.default_template = "chatglm3";
  return model;
}

std::vector<ParamSpec> chatglm_parameters(const ModelConfig& config) {
  return decoder_parameters(config, {.embedding = "transformer.embedding.word_embeddings",
                                     .layer = "transformer.encoder.layers.",
                                     .qkv = "self_attention.query_key_value",
                                     .o = "self_attention.dense",
                                     .down = "mlp.dense_4h_to_h",
                                     .gate_up = "mlp.dense_h_to_4h",
                                     .final_norm = "transformer.encoder.final_layernorm",
                                     .head = "transformer.output_layer"});
}

}  // namespace

Family chatglm_family() {
  return {"chatglm",     {"chatglm"},        {"ChatGLMModel", "ChatGLMForConditionalGeneration"},
          parse_chatglm, chatglm_parameters, {R"(transformer\.rotary_pos_emb\.inv_freq)"}};
}

}  // namespace danlu::arch
