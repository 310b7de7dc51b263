#include "models/network.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/tensor.h>

#include <cmath>
#include <map>
#include <tuple>

#include "base/error.h"
#include "ops/alibi.h"

namespace danlu::models {
namespace network_detail {

using arch::Role;

/// Parameters by what they are.
class ByRole {
 public:
  explicit ByRole(const std::vector<BaseParameter>& parameters) {
    for (const BaseParameter& p : parameters) {
      found_[{p.spec.role, p.spec.layer, p.spec.is_bias}] = {p.spec.name, p.tensor, p.spec.split};
    }
  }
  layers::Parameter optional(Role role, int64_t layer, bool is_bias) const {
    const auto it = found_.find({role, layer, is_bias});
    return it == found_.end() ? layers::Parameter{} : it->second;
  }
  layers::Parameter weight(Role role, int64_t layer = -1) const {
    layers::Parameter parameter = optional(role, layer, false);
    if (!parameter.defined()) {
      throw InternalError("[network] the family declares no weight for role " +
                          std::to_string(static_cast<int>(role)) + " of layer " +
                          std::to_string(layer));
    }
    return parameter;
  }
  layers::Linear linear(Role role, int64_t layer) const {
    layers::Linear result;
    result.weight = weight(role, layer);
    result.bias = optional(role, layer, true);
    result.path = module_path(result.weight.name);
    return result;
  }

 private:
  static std::string module_path(const std::string& name) {
    return name.substr(0, name.rfind('.'));
  }
  std::map<std::tuple<Role, int64_t, bool>, layers::Parameter> found_;
};

layers::Attention attention(const arch::ModelConfig& config, const ByRole& parameters,
                            int64_t layer, const at::Tensor& alibi_slopes_Q) {
  layers::Attention result;
  result.layer = layer;
  result.num_heads = config.num_heads;
  result.num_kv_heads = config.num_kv_heads;
  result.head_dim = config.head_dim;
  result.qkv_layout = config.qkv_layout;
  if (config.qkv_layout == arch::QkvLayout::kSeparate) {
    result.q = parameters.linear(Role::kQ, layer);
    result.k = parameters.linear(Role::kK, layer);
    result.v = parameters.linear(Role::kV, layer);
  } else {
    result.qkv = parameters.linear(Role::kQkv, layer);
  }
  if (config.qk_norm) {
    result.q_norm = layers::RmsNorm{parameters.weight(Role::kQNorm, layer), config.norm_eps};
    result.k_norm = layers::RmsNorm{parameters.weight(Role::kKNorm, layer), config.norm_eps};
  }
  result.options.scale = 1.0 / std::sqrt(static_cast<double>(config.head_dim));
  if (!config.sliding_window.empty()) result.options.window = config.sliding_window[layer];
  result.options.alibi_slopes_Q = alibi_slopes_Q;
  result.o = parameters.linear(Role::kO, layer);
  return result;
}

}  // namespace network_detail

Network::Network(const arch::ModelConfig& config, const std::vector<BaseParameter>& parameters) {
  using network_detail::Role;
  const network_detail::ByRole by_role(parameters);
  embedding.weight = by_role.weight(Role::kEmbedding);
  at::Tensor slopes;
  if (config.alibi) {
    slopes = at::tensor(ops::alibi_slopes(config.num_heads), at::TensorOptions(at::kFloat))
                 .to(embedding.weight.tensor.device());
  }
  for (int64_t i = 0; i < config.num_layers; ++i) {
    auto layer = std::make_unique<layers::DecoderLayer>();
    layer->attention_norm = {by_role.weight(Role::kAttentionNorm, i), config.norm_eps};
    layer->attention = network_detail::attention(config, by_role, i, slopes);
    layer->mlp_norm = {by_role.weight(Role::kMlpNorm, i), config.norm_eps};
    layer->mlp = {by_role.linear(Role::kGate, i), by_role.linear(Role::kUp, i),
                  by_role.linear(Role::kDown, i)};
    layers.push_back(std::move(layer));
  }
  final_norm = {by_role.weight(Role::kFinalNorm), config.norm_eps};
  head = {by_role.linear(Role::kHead, -1), config.norm_head};
}

std::vector<layers::Linear*> Network::linears() {
  std::vector<layers::Linear*> result;
  for (const auto& layer : layers) {
    layers::Attention& a = layer->attention;
    for (layers::Linear* linear :
         {&a.q, &a.k, &a.v, &a.qkv, &a.o, &layer->mlp.gate, &layer->mlp.up, &layer->mlp.down}) {
      if (linear->defined()) result.push_back(linear);
    }
  }
  return result;
}

std::vector<layers::Linear*> Network::adaptable() {
  std::vector<layers::Linear*> result = linears();
  result.push_back(&head.linear);
  return result;
}

std::vector<layers::Parameter*> Network::slots() {
  std::vector<layers::Parameter*> result{&embedding.weight};
  const auto add_linear = [&](layers::Linear& linear) {
    for (layers::Parameter* p : {&linear.weight, &linear.bias}) {
      if (p->defined()) result.push_back(p);
    }
  };
  for (const auto& layer : layers) {
    result.push_back(&layer->attention_norm.weight);
    for (layers::Linear* linear : {&layer->attention.q, &layer->attention.k, &layer->attention.v,
                                   &layer->attention.qkv, &layer->attention.o}) {
      add_linear(*linear);
    }
    if (layer->attention.q_norm) result.push_back(&layer->attention.q_norm->weight);
    if (layer->attention.k_norm) result.push_back(&layer->attention.k_norm->weight);
    result.push_back(&layer->mlp_norm.weight);
    for (layers::Linear* linear : {&layer->mlp.gate, &layer->mlp.up, &layer->mlp.down})
      add_linear(*linear);
  }
  result.push_back(&final_norm.weight);
  add_linear(head.linear);
  return result;
}

}  // namespace danlu::models
