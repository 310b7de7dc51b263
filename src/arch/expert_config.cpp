// How config.json says which layers have experts, and how many.
#include <fmt/format.h>

#include <algorithm>

#include "arch/decoder.h"
#include "base/error.h"

namespace danlu::arch {
namespace {

/// How tokens choose their experts: topk_method and the keys that go with it.
void read_choice(const ConfigReader& config, bool is_v3, ExpertConfig& experts) {
  const std::string method = config.text("topk_method").value_or(is_v3 ? "noaux_tc" : "greedy");
  const std::string score = config.text("scoring_func").value_or(is_v3 ? "sigmoid" : "softmax");
  const bool is_known =
      is_v3 ? method == "noaux_tc" : method == "greedy" || method == "group_limited_greedy";
  if (!is_known) {
    throw ModelError(tr("[config.json] topk_method \"{}\" is not one of this family", method));
  }
  if (score != (is_v3 ? "sigmoid" : "softmax")) {
    throw ModelError(tr("[config.json] scoring_func \"{}\" is not this family's", score));
  }
  experts.score = is_v3 ? RouterScore::kSigmoid : RouterScore::kSoftmax;
  experts.has_choice_bias = experts.sums_two_of_group = is_v3;
  experts.norm_topk = config.boolean_or("norm_topk_prob", is_v3);
  // The published code of V2 scales only weights that it does not normalise.
  if (is_v3 || !experts.norm_topk)
    experts.weight_scale = config.number_or("routed_scaling_factor", is_v3 ? 2.5 : 1.0);
  if (method == "greedy") return;
  experts.groups = config.required_size("n_group", kMaxExperts);
  experts.chosen_groups = config.required_size("topk_group", kMaxExperts);
  if (experts.count % experts.groups != 0 || experts.chosen_groups > experts.groups) {
    throw ModelError(tr(
        "[config.json] n_routed_experts={} are no n_group={} equal groups of which topk_group={} "
        "are chosen",
        experts.count, experts.groups, experts.chosen_groups));
  }
}

}  // namespace

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

ExpertConfig parse_deepseek_experts(const ConfigReader& config, bool is_v3, int64_t num_layers) {
  ExpertConfig experts;
  if (!config.has("n_routed_experts")) return experts;
  const int64_t dense = config.integer("first_k_dense_replace").value_or(0);
  const int64_t step = config.size_or("moe_layer_freq", 1, kMaxLayers);
  for (int64_t layer = 0; layer < num_layers; ++layer)
    experts.sparse_layer.push_back(layer >= dense && layer % step == 0);
  const auto& sparse = experts.sparse_layer;
  if (std::find(sparse.begin(), sparse.end(), true) == sparse.end()) return {};
  experts.count = config.required_size("n_routed_experts", kMaxExperts);
  experts.per_token = config.required_size("num_experts_per_tok", kMaxExperts);
  experts.ffn_size = config.required_size("moe_intermediate_size", kMaxFfn);
  if (config.integer("n_shared_experts").value_or(0) > 0)
    experts.shared_ffn_size =
        config.required_size("n_shared_experts", kMaxExperts) * experts.ffn_size;
  experts.aux_loss_coef = config.number("aux_loss_alpha");
  experts.prediction_layers =
      std::max<int64_t>(0, config.integer("num_nextn_predict_layers").value_or(0));
  read_choice(config, is_v3, experts);
  return experts;
}

}  // namespace danlu::arch
