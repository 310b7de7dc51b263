// MiniCPM 1, 2 and 4: Llama with factors on embeddings, residual branches and the head's input.
#include <cmath>

#include "arch/decoder.h"
#include "arch/families/families.h"
#include "base/error.h"

namespace danlu::arch {
namespace {

double positive_factor(const ConfigReader& config, std::string_view key, double fallback) {
  const double number = config.number_or(key, fallback);
  if (number > 0) return number;
  throw ModelError(tr("[config.json] {} must be a positive number, got {}", key, number));
}

ModelConfig parse_minicpm(const Json& config_json) {
  ModelConfig model = parse_decoder(
      config_json, "minicpm", {.norm_eps = 1e-6, .max_positions = 2048, .tie_embeddings = true});
  const ConfigReader config(config_json);
  if (config.integer("num_experts").value_or(0) > 0)
    throw ModelError(tr("[config.json] num_experts: MiniCPM with experts is not supported"));
  model.qkv_bias = model.o_bias = config.boolean_or("attention_bias", false);
  model.embedding_scale = positive_factor(config, "scale_emb", 1.0);
  model.residual_scale = positive_factor(config, "scale_depth", 1.0) /
                         std::sqrt(static_cast<double>(model.num_layers));
  model.logit_scale =
      positive_factor(config, "dim_model_base", 1.0) / static_cast<double>(model.hidden_size);
  model.default_template = "cpm";
  return model;
}

std::vector<ParamSpec> minicpm_parameters(const ModelConfig& config) {
  return decoder_parameters(config, {});
}

}  // namespace

Family minicpm_family() {
  return {"minicpm",     {"minicpm"},        {"MiniCPMForCausalLM"},
          parse_minicpm, minicpm_parameters, rotary_buffer_names()};
}

}  // namespace danlu::arch
