// How config.json says which layers have experts, and how many.
#include <fmt/format.h>

#include <algorithm>

#include "arch/decoder.h"
#include "base/error.h"

namespace danlu::arch {

ExpertConfig parse_qwen_experts(const ConfigReader& config, int64_t num_layers) {
  ExpertConfig experts;
  experts.count = config.required_size("num_experts", kMaxExperts);
  experts.per_token = config.required_size("num_experts_per_tok", kMaxExperts);
  experts.ffn_size = config.required_size("moe_intermediate_size", kMaxFfn);
  experts.norm_topk = config.boolean_or("norm_topk_prob", false);
  experts.aux_loss_coef = config.number("router_aux_loss_coef");
  const int64_t step = config.size_or("decoder_sparse_step", 1, kMaxLayers);
  const std::vector<int64_t> dense = config.integers("mlp_only_layers");
  for (const int64_t layer : dense) {
    if (layer >= 0 && layer < num_layers) continue;
    throw ModelError(tr("[config.json] mlp_only_layers must name layers from 0 to {}, got {}",
                        num_layers - 1, layer));
  }
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    const bool is_listed = std::find(dense.begin(), dense.end(), layer) != dense.end();
    experts.sparse_layer.push_back(!is_listed && (layer + 1) % step == 0);
  }
  return experts;
}

}  // namespace danlu::arch
