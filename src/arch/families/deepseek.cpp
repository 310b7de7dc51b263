// DeepSeek-V2, V2-Lite, V3 and R1: latent attention, and experts after the first layers.
#include "arch/attention_size.h"
#include "arch/decoder.h"
#include "arch/families/families.h"

namespace danlu::arch {
namespace {

ModelConfig parse_deepseek(const Json& config_json, bool is_v3) {
  // head_dim in these files is that of the rotated part, or nothing.
  const ConfigReader config(config_json);
  ModelConfig model =
      parse_decoder(config_json, is_v3 ? "deepseek_v3" : "deepseek_v2",
                    {.norm_eps = 1e-6,
                     .max_positions = is_v3 ? 4096 : 2048,
                     .head_dim = config.required_size("qk_rope_head_dim", kMaxWidth)});
  model.qkv_bias = model.o_bias = config.boolean_or("attention_bias", false);
  model.rope.is_pairwise = !is_v3 || config.boolean_or("rope_interleave", true);
  read_latent(config, 0, model);
  model.experts = parse_deepseek_experts(config, is_v3, model.num_layers);
  model.default_template = is_v3                       ? "deepseek3"
                           : config.has("q_lora_rank") ? "deepseek2"
                                                       : "deepseek2-lite";
  return model;
}

ModelConfig parse_deepseek_v2(const Json& config_json) {
  return parse_deepseek(config_json, /*is_v3=*/false);
}

ModelConfig parse_deepseek_v3(const Json& config_json) {
  return parse_deepseek(config_json, /*is_v3=*/true);
}

std::vector<ParamSpec> deepseek_parameters(const ModelConfig& config) {
  return decoder_parameters(config, {.shared_expert = "mlp.shared_experts."});
}

}  // namespace

Family deepseek_v2_family() {
  return {"deepseek_v2",     {"deepseek_v2"},     {"DeepseekV2ForCausalLM"},
          parse_deepseek_v2, deepseek_parameters, rotary_buffer_names()};
}

Family deepseek_v3_family() {
  return {"deepseek_v3",     {"deepseek_v3"},     {"DeepseekV3ForCausalLM"},
          parse_deepseek_v3, deepseek_parameters, rotary_buffer_names()};
}

}  // namespace danlu::arch
