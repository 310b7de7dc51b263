#include "arch/attention_size.h"

#include <cmath>

#include "base/error.h"

namespace danlu::arch {
namespace {

/// DeepSeek's square of yarn's temperature.
double squared_temperature(const RopeConfig& rope) {
  if (rope.scaling != RopeScaling::kYarn || rope.factor <= 1) return 1.0;
  const double temperature = 0.1 * rope.mscale_all_dim.value_or(0) * std::log(rope.factor) + 1;
  return temperature * temperature;
}

}  // namespace

int64_t value_dim(const ModelConfig& config) {
  return config.latent ? config.latent->v_dim : config.head_dim;
}

int64_t rotated_dims(const ModelConfig& config) {
  return config.rope.rotated_dims > 0 ? config.rope.rotated_dims : config.head_dim;
}

KeptOfToken kept_of_token(const ModelConfig& config) {
  if (config.latent) return {1, config.latent->kv_rank + config.latent->rope_dim, 0};
  return {config.num_kv_heads, config.head_dim, config.head_dim};
}

void read_latent(const ConfigReader& config, int64_t v_dim, ModelConfig& model) {
  LatentConfig latent;
  if (config.has("q_lora_rank")) latent.q_rank = config.required_size("q_lora_rank", kMaxWidth);
  latent.kv_rank = config.required_size("kv_lora_rank", kMaxWidth);
  latent.nope_dim = config.required_size("qk_nope_head_dim", kMaxWidth);
  latent.rope_dim = config.required_size("qk_rope_head_dim", kMaxWidth);
  latent.v_dim = v_dim > 0 ? v_dim : config.required_size("v_head_dim", kMaxWidth);
  if (latent.rope_dim % 2 != 0) {
    throw ModelError(tr("[config.json] qk_rope_head_dim must be even, got {}", latent.rope_dim));
  }
  model.num_kv_heads = model.num_heads;  // whatever num_key_value_heads says
  model.head_dim = latent.nope_dim + latent.rope_dim;
  model.rope.rotated_dims = latent.rope_dim;
  model.attention_scale =
      squared_temperature(model.rope) / std::sqrt(static_cast<double>(model.head_dim));
  model.latent = latent;
}

}  // namespace danlu::arch
