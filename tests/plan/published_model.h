// Models of published measurements, by their shapes.
#pragma once
#include "plan/estimate.h"

namespace danlu::plan {

struct Shape {
  int64_t layers, hidden, ffn, heads, kv_heads, vocab;
  bool tied = false;
};

inline arch::ModelConfig model_shaped(const Shape& shape) {
  return arch::parse_model_config(Json{{"architectures", {"LlamaForCausalLM"}},
                                       {"model_type", "llama"},
                                       {"vocab_size", shape.vocab},
                                       {"hidden_size", shape.hidden},
                                       {"num_hidden_layers", shape.layers},
                                       {"num_attention_heads", shape.heads},
                                       {"num_key_value_heads", shape.kv_heads},
                                       {"intermediate_size", shape.ffn},
                                       {"max_position_embeddings", 131072},
                                       {"rms_norm_eps", 1e-5},
                                       {"tie_word_embeddings", shape.tied},
                                       {"hidden_act", "silu"}},
                                  "test");
}

/// Megatron-LM's GPT. Its MLP of h to 4h and back has the products of a gated one of 8/3 h, here
/// rounded to what 8 ranks divide.
inline arch::ModelConfig gpt(int64_t layers, int64_t hidden, int64_t heads) {
  return model_shaped({layers, hidden, (hidden * 8 / 3 + 4) / 8 * 8, heads, heads, 51200, true});
}

}  // namespace danlu::plan
