// Baichuan 1 and 2, 7B and 13B: Llama with q, k and v in one matrix (W_pack).
#include "arch/decoder.h"
#include "arch/families/families.h"

namespace danlu::arch {
namespace {

/// Baichuan 1 has 64000 tokens, or some more where a tuner added them, and a plain head; Baichuan 2
/// (125696) normalises the head's rows, and its files say z_loss_weight.
bool is_baichuan_1(int64_t vocab_size, const ConfigReader& config) {
  constexpr int64_t kTokens = 64000, kAdded = 1024;
  if (vocab_size == kTokens) return true;
  return vocab_size > kTokens && vocab_size <= kTokens + kAdded && !config.has("z_loss_weight");
}

ModelConfig parse_baichuan(const Json& config_json) {
  ModelConfig model = parse_decoder(config_json, "baichuan", {.norm_eps = 1e-6});
  const ConfigReader config(config_json);
  model.qkv_layout = QkvLayout::kThirds;
  model.norm_head = !is_baichuan_1(model.vocab_size, config);
  // Baichuan 1 marks turns with other tokens.
  if (model.norm_head) model.default_template = "baichuan2";
  model.z_loss_weight = config.number_or("z_loss_weight", 0.0);
  // The 13B models use ALiBi. Their config says so by having no max_position_embeddings; a size
  // test would break on any other depth.
  if (!config.has("max_position_embeddings")) {
    model.alibi = true;
    model.rope.enabled = false;
    model.max_positions = config.size_or("model_max_length", 0, kMaxPositions);
  }
  return model;
}

std::vector<ParamSpec> baichuan_parameters(const ModelConfig& config) {
  return decoder_parameters(config, {.qkv = "self_attn.W_pack"});
}

std::vector<std::string> baichuan_buffers() {
  std::vector<std::string> names = rotary_buffer_names();
  names.push_back(R"(model\.(alibi_mask|future_mask))");
  return names;
}

}  // namespace

Family baichuan_family() {
  return {"baichuan",     {"baichuan"},        {"BaichuanForCausalLM", "BaiChuanForCausalLM"},
          parse_baichuan, baichuan_parameters, baichuan_buffers()};
}

}  // namespace danlu::arch
