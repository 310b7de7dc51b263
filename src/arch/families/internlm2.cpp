// InternLM2 and 2.5: Llama's arithmetic under other names, q, k and v interleaved by KV group
// (wqkv).
#include "arch/decoder.h"
#include "arch/families/families.h"

namespace danlu::arch {
namespace {

ModelConfig parse_internlm2(const Json& config_json) {
  ModelConfig model =
      parse_decoder(config_json, "internlm2", {.norm_eps = 1e-6, .max_positions = 2048});
  model.qkv_layout = QkvLayout::kInterleaved;
  // The class default is true; every published config says false.
  model.qkv_bias = model.o_bias = ConfigReader(config_json).boolean_or("bias", true);
  model.default_template = "intern2";
  return model;
}

std::vector<ParamSpec> internlm2_parameters(const ModelConfig& config) {
  return decoder_parameters(config, {.embedding = "model.tok_embeddings",
                                     .attention_norm = "attention_norm",
                                     .qkv = "attention.wqkv",
                                     .o = "attention.wo",
                                     .mlp_norm = "ffn_norm",
                                     .gate = "feed_forward.w1",
                                     .up = "feed_forward.w3",
                                     .down = "feed_forward.w2",
                                     .head = "output"});
}

std::vector<std::string> internlm2_buffers() {
  return {R"(model\.layers\.\d+\.attention\.rotary_emb\.(inv_freq|cos_cached|sin_cached))"};
}

}  // namespace

Family internlm2_family() {
  return {"internlm2",     {"internlm2"},        {"InternLM2ForCausalLM"},
          parse_internlm2, internlm2_parameters, internlm2_buffers()};
}

}  // namespace danlu::arch
