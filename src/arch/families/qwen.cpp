// Qwen 1: Qwen 2's arithmetic under GPT-2's names, q, k and v in one matrix. Beyond seq_length its
// own code changes the rotary base and scales queries while it answers; here seq_length is the
// model's window.
#include "arch/decoder.h"
#include "arch/families/families.h"
#include "base/error.h"

namespace danlu::arch {
namespace {

/// The same settings under the keys that most families have.
Json with_usual_keys(const Json& config_json) {
  const ConfigReader config(config_json);
  Json usual = config_json;
  for (const auto& [theirs, key] :
       {std::pair("layer_norm_epsilon", "rms_norm_eps"), std::pair("rotary_emb_base", "rope_theta"),
        std::pair("kv_channels", "head_dim"), std::pair("seq_length", "max_position_embeddings")}) {
    if (const Json* value = config.value(theirs)) usual[key] = *value;
  }
  return usual;
}

ModelConfig parse_qwen(const Json& config_json) {
  const ConfigReader config(config_json);
  if (const double part = config.number_or("rotary_pct", 1.0); part != 1.0)
    throw ModelError(tr("[config.json] rotary_pct must be 1, got {}", part));
  ModelConfig model = parse_decoder(with_usual_keys(config_json), "qwen",
                                    {.norm_eps = 1e-6, .max_positions = 8192});
  model.raw = config_json;
  if (model.ffn_size % 2 != 0) {
    throw ModelError(
        tr("[config.json] intermediate_size={} must be even: it counts both halves of "
           "the feed-forward part",
           model.ffn_size));
  }
  model.ffn_size /= 2;
  model.qkv_layout = QkvLayout::kThirds;
  model.qkv_bias = true;
  model.o_bias = model.mlp_bias = !config.boolean_or("no_bias", true);
  model.default_template = "qwen";
  return model;
}

std::vector<ParamSpec> qwen_parameters(const ModelConfig& config) {
  return decoder_parameters(config, {.embedding = "transformer.wte",
                                     .layer = "transformer.h.",
                                     .attention_norm = "ln_1",
                                     .qkv = "attn.c_attn",
                                     .o = "attn.c_proj",
                                     .mlp_norm = "ln_2",
                                     .gate = "mlp.w2",
                                     .up = "mlp.w1",
                                     .down = "mlp.c_proj",
                                     .final_norm = "transformer.ln_f"});
}

}  // namespace

Family qwen_family() {
  return {"qwen",
          {"qwen"},
          {"QWenLMHeadModel"},
          parse_qwen,
          qwen_parameters,
          {R"(transformer\.rotary_emb\.inv_freq)",
           R"(transformer\.h\.\d+\.attn\.(masked_bias|bias|logn_tensor))"}};
}

}  // namespace danlu::arch
