// bench/half_billion.h: the shape of Qwen2.5-0.5B, for benches that need a model and no particular
// weights.
#pragma once
#include "arch/model_config.h"
#include "base/json.h"

namespace danlu::bench {

inline arch::ModelConfig half_billion() {
  const Json json = {{"model_type", "qwen2"},      {"vocab_size", 151936},
                     {"hidden_size", 896},         {"intermediate_size", 4864},
                     {"num_hidden_layers", 24},    {"num_attention_heads", 14},
                     {"num_key_value_heads", 2},   {"max_position_embeddings", 32768},
                     {"rms_norm_eps", 1e-6},       {"rope_theta", 1e6},
                     {"tie_word_embeddings", true}};
  return arch::family_of(json).parse(json);
}

}  // namespace danlu::bench
