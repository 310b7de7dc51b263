// MiniCPM3: MiniCPM's scales with latent attention, whose heads are rotated by halves.
#include <cmath>

#include "arch/attention_size.h"
#include "arch/decoder.h"
#include "arch/families/families.h"

namespace danlu::arch {
namespace {

ModelConfig parse_minicpm3(const Json& config_json) {
  const ConfigReader config(config_json);
  ModelConfig model =
      parse_decoder(config_json, "minicpm3",
                    {.norm_eps = 1e-6,
                     .max_positions = 32768,
                     .head_dim = config.required_size("qk_rope_head_dim", kMaxWidth),
                     .tie_embeddings = true});
  model.qkv_bias = model.o_bias = config.boolean_or("attention_bias", false);
  // Whatever the config says of values, the published code makes them this wide.
  read_latent(config, model.hidden_size / model.num_heads, model);
  model.embedding_scale = config.number_or("scale_emb", 1.0);
  model.residual_scale =
      config.number_or("scale_depth", 1.0) / std::sqrt(static_cast<double>(model.num_layers));
  const double base = config.number_or("dim_model_base", static_cast<double>(model.hidden_size));
  model.logit_scale = base / static_cast<double>(model.hidden_size);
  // The published code chooses by the longest sequence that there may be, not by each one's length.
  const bool is_long = model.max_positions > model.rope.original_max_positions;
  RopeConfig& rope = model.rope;
  (is_long ? rope.short_factors : rope.long_factors) =
      is_long ? rope.long_factors : rope.short_factors;
  model.default_template = "cpm";
  return model;
}

std::vector<ParamSpec> minicpm3_parameters(const ModelConfig& config) {
  return decoder_parameters(config, {});
}

}  // namespace

Family minicpm3_family() {
  return {"minicpm3",     {"minicpm3"},        {"MiniCPM3ForCausalLM"},
          parse_minicpm3, minicpm3_parameters, rotary_buffer_names()};
}

}  // namespace danlu::arch
