// arch/attention_size.h: sizes of a layer's attention that a config gives in one way or another.
#pragma once
#include <cstdint>

#include "arch/config_reader.h"
#include "arch/model_config.h"

namespace danlu::arch {

/// Dimensions of a head's value; a query and a key have config.head_dim.
int64_t value_dim(const ModelConfig& config);

/// How many dimensions of a head rotary embedding turns.
int64_t rotated_dims(const ModelConfig& config);

/// What a layer keeps of a token for those after it: a key and a value of every key/value head, or
/// of latent attention one row that all heads make theirs of.
struct KeptOfToken {
  int64_t heads = 0, key_dim = 0, value_dim = 0;
  int64_t elements() const { return heads * (key_dim + value_dim); }
};
KeptOfToken kept_of_token(const ModelConfig& config);

/// Reads q_lora_rank (null: none), kv_lora_rank, qk_nope_head_dim, qk_rope_head_dim and v_head_dim
/// (0 in `v_dim`: the key must be there), and makes `model` one of latent attention: each head has
/// its own key, head_dim is that of a query, and with yarn the scale has the square of its
/// temperature for mscale_all_dim. Errors: ModelError.
void read_latent(const ConfigReader& config, int64_t v_dim, ModelConfig& model);

}  // namespace danlu::arch
