// DeepSeek-V2, V2-Lite, V3 and R1: latent attention, and experts behind the first layers.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "arch/attention_size.h"
#include "arch/decoder.h"
#include "arch/families/families.h"
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

/// Empty if no layer has any.
ExpertConfig read_experts(const ConfigReader& config, bool is_v3, int64_t num_layers) {
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

ModelConfig parse_deepseek(const Json& config_json, bool is_v3) {
  // head_dim in these files is that of the rotated part, or nothing.
  const ConfigReader config(config_json);
  ModelConfig model =
      parse_decoder(config_json, is_v3 ? "deepseek_v3" : "deepseek_v2",
                    {.norm_eps = 1e-6,
                     .max_positions = is_v3 ? 4096 : 2048,
                     .head_dim = config.required_size("qk_rope_head_dim", kMaxWidth)});
  model.qkv_bias = model.o_bias = config.boolean_or("attention_bias", false);
  model.rope.is_pairwise = !is_v3 || config.boolean_or("rope_interleave", true);
  read_latent(config, 0, model);
  model.experts = read_experts(config, is_v3, model.num_layers);
  model.default_template = is_v3                       ? "deepseek3"
                           : config.has("q_lora_rank") ? "deepseek2"
                                                       : "deepseek2-lite";
  return model;
}

ModelConfig parse_deepseek_v2(const Json& config_json) {
  return parse_deepseek(config_json, /*is_v3=*/false);
}

ModelConfig parse_deepseek_v3(const Json& config_json) {
  return parse_deepseek(config_json, /*is_v3=*/true);
}

std::vector<ParamSpec> deepseek_parameters(const ModelConfig& config) {
  return decoder_parameters(config, {.shared_expert = "mlp.shared_experts."});
}

}  // namespace

Family deepseek_v2_family() {
  return {"deepseek_v2",     {"deepseek_v2"},     {"DeepseekV2ForCausalLM"},
          parse_deepseek_v2, deepseek_parameters, rotary_buffer_names()};
}

Family deepseek_v3_family() {
  return {"deepseek_v3",     {"deepseek_v3"},     {"DeepseekV3ForCausalLM"},
          parse_deepseek_v3, deepseek_parameters, rotary_buffer_names()};
}

}  // namespace danlu::arch
