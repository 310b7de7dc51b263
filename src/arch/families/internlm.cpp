// InternLM 1: Llama with biases in attention, and a rotary embedding under keys of its own.
#include "arch/decoder.h"
#include "arch/families/families.h"
#include "base/error.h"

namespace danlu::arch {
namespace {

/// `rotary` {"base", "type": origin | dynamic, "scaling_factor"} under the keys of other families.
Json with_usual_rotary(const Json& config_json) {
  const Json* rotary = ConfigReader(config_json).value("rotary");
  if (!rotary) return config_json;
  const ConfigReader keys(*rotary, "rotary.");
  Json usual = config_json;
  usual["rope_theta"] = keys.number_or("base", 10000.0);
  const std::string type = keys.text("type").value_or("origin");
  if (type == "dynamic") {
    usual["rope_scaling"] = {{"type", "dynamic"},
                             {"factor", keys.number_or("scaling_factor", 1.0)}};
  } else if (type != "origin") {
    throw ModelError(tr("[config.json] rotary.type must be origin or dynamic, got \"{}\"", type));
  }
  return usual;
}

ModelConfig parse_internlm(const Json& config_json) {
  ModelConfig model = parse_decoder(with_usual_rotary(config_json), "internlm",
                                    {.norm_eps = 1e-6, .max_positions = 2048});
  model.raw = config_json;
  model.qkv_bias = model.o_bias = ConfigReader(config_json).boolean_or("bias", true);
  return model;
}

std::vector<ParamSpec> internlm_parameters(const ModelConfig& config) {
  return decoder_parameters(config, {});
}

}  // namespace

Family internlm_family() {
  return {"internlm",     {"internlm"},        {"InternLMForCausalLM"},
          parse_internlm, internlm_parameters, rotary_buffer_names()};
}

}  // namespace danlu::arch
