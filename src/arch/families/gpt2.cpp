// GPT-2 and GPT-3: learned positions, layer norms with biases, queries, keys and values in one
// matrix, an MLP without a gate, a tied head. Files hold matrices turned over (Conv1D).
#include <utility>

#include "arch/decoder.h"
#include "arch/families/families.h"
#include "arch/turned_matrices.h"
#include "base/error.h"

namespace danlu::arch {
namespace {

/// The same settings under the keys that most families have.
Json gpt2_usual_keys(const Json& config_json) {
  const ConfigReader config(config_json);
  Json usual = config_json;
  for (const auto& [theirs, key] :
       {std::pair("n_embd", "hidden_size"), std::pair("n_layer", "num_hidden_layers"),
        std::pair("n_head", "num_attention_heads"),
        std::pair("n_positions", "max_position_embeddings"),
        std::pair("layer_norm_epsilon", "rms_norm_eps"),
        std::pair("n_inner", "intermediate_size")}) {
    const Json* value = config.value(theirs);
    if (value) usual[key] = *value;
  }
  if (!config.value("n_inner") && !config.value("intermediate_size"))
    usual["intermediate_size"] = 4 * ConfigReader(usual).required_size("hidden_size", kMaxWidth);
  for (const char* other : {"num_key_value_heads", "head_dim", "hidden_act"}) usual.erase(other);
  return usual;
}

void refuse_other_gpt2(const ConfigReader& config) {
  for (const char* key : {"scale_attn_by_inverse_layer_idx", "add_cross_attention"}) {
    if (config.boolean_or(key, false))
      throw ModelError(tr("[config.json] {} must be false, got true", key));
  }
}

Activation gpt2_activation(const ConfigReader& config) {
  const std::string name = config.text("activation_function").value_or("gelu_new");
  const Activation activation = parse_activation("activation_function", name);
  if (activation != Activation::kSilu) return activation;
  throw ModelError(
      tr("[config.json] {} must be gelu or gelu_new, got \"{}\"", "activation_function", name));
}

ModelConfig parse_gpt2(const Json& config_json) {
  const ConfigReader config(config_json);
  refuse_other_gpt2(config);
  const Json usual = gpt2_usual_keys(config_json);
  ModelConfig model = parse_decoder(
      usual, "gpt2", {.norm_eps = 1e-5, .max_positions = 1024, .tie_embeddings = true});
  model.raw = config_json;
  // The table has a row for each.
  ConfigReader(usual).size_or("max_position_embeddings", 1, kMaxVocab);
  model.qkv_layout = QkvLayout::kThirds;
  model.qkv_bias = model.o_bias = model.mlp_bias = true;
  model.norm = NormKind::kLayer;
  model.activation = gpt2_activation(config);
  model.is_gated = false;
  model.rope.enabled = false;
  if (!config.boolean_or("scale_attn_weights", true)) model.attention_scale = 1.0;
  return model;
}

std::vector<ParamSpec> gpt2_parameters(const ModelConfig& config) {
  return decoder_parameters(config, {.embedding = "transformer.wte",
                                     .positions = "transformer.wpe",
                                     .layer = "transformer.h.",
                                     .attention_norm = "ln_1",
                                     .qkv = "attn.c_attn",
                                     .o = "attn.c_proj",
                                     .mlp_norm = "ln_2",
                                     .up = "mlp.c_fc",
                                     .down = "mlp.c_proj",
                                     .final_norm = "transformer.ln_f"});
}

}  // namespace

bool turns_matrices(const ModelConfig& config) { return config.family == "gpt2"; }

Family gpt2_family() {
  return {"gpt2",
          {"gpt2"},
          {"GPT2LMHeadModel", "GPT2Model"},
          parse_gpt2,
          gpt2_parameters,
          // Masks that old files carry.
          {R"((transformer\.)?h\.\d+\.attn\.(bias|masked_bias))"},
          "transformer."};
}

}  // namespace danlu::arch
