#include "models/causal_lm.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include "base/error.h"
#include "base/file.h"
#include "base/pattern.h"
#include "models/causal_lm_impl.h"
#include "models/rope.h"
#include "ops/cross_entropy.h"
#include "ops/dropout.h"
#include "ops/linear.h"

namespace danlu::models {
namespace causal_lm_detail {

std::vector<BaseParameter> allocate(const arch::ModelConfig& config, at::ScalarType dtype,
                                    const at::Device& device) {
  config.validate();
  require_runnable(config);
  std::vector<BaseParameter> result;
  std::map<std::string, at::Tensor> by_name;
  for (arch::ParamSpec& spec : arch::parameters_of(config)) {
    at::Tensor tensor;
    if (spec.tied_to.empty()) {
      tensor = at::empty(spec.shape, at::TensorOptions(dtype).device(device)).requires_grad_(true);
    } else {
      tensor = by_name.at(spec.tied_to);
    }
    by_name[spec.name] = tensor;
    result.push_back({std::move(spec), tensor, true});
  }
  return result;
}

}  // namespace causal_lm_detail

void require_runnable(const arch::ModelConfig& config) {
  if (!config.has_experts()) return;
  throw ModelError(tr("[model] {}: mixture-of-experts models are converted and inspected, but not "
                      "trained or run by this version",
                      config.family),
                   tr("take a dense model of the same family"));
}

CausalLM::Impl::Impl(const arch::ModelConfig& model_config, at::ScalarType scalar_type,
                     const at::Device& at_device)
    : config(model_config),
      dtype(scalar_type),
      device(at_device),
      base(causal_lm_detail::allocate(model_config, scalar_type, at_device)),
      network(config, base) {}

void CausalLM::Impl::apply_trainable() {
  for (BaseParameter& parameter : base) {
    if (parameter.spec.tied_to.empty()) parameter.tensor.requires_grad_(parameter.trainable);
  }
}

std::shared_ptr<const layers::Pass> CausalLM::Impl::pass_for(const ForwardInput& input) const {
  auto pass = std::make_shared<layers::Pass>();
  pass->segments = input.segments;
  pass->rotary = rope_table(config, input.positions_N.to(device), input.segments);
  if (input.cache) {
    pass->append_kv = [cache = input.cache](int64_t layer, const at::Tensor& k_NKD,
                                            const at::Tensor& v_NKD) {
      return cache->append(layer, k_NKD, v_NKD);
    };
  }
  pass->recompute_inner = recompute == Recompute::kSelective;
  if (input.dropout_keys_N.defined()) pass->dropout_keys_N = input.dropout_keys_N.to(device);
  return pass;
}

ops::HeadAddition CausalLM::Impl::head_addition(const at::Tensor& hidden_NH,
                                                const at::Tensor& dropout_keys_N) const {
  const layers::Linear& head = network.head.linear;
  if (!head.adapter) return {};
  const layers::LoraAdapter& adapter = *head.adapter;
  const bool drops = dropout_keys_N.defined() && adapter.dropout > 0;
  const at::Tensor input_NH = drops ? ops::dropout(hidden_NH, adapter.dropout,
                                                   dropout_keys_N.to(device), hash_bytes(head.path))
                                    : hidden_NH;
  return {ops::linear(input_NH, adapter.a_RI) * adapter.scale, adapter.b_OR};
}

CausalLM::CausalLM(const arch::ModelConfig& config, at::ScalarType dtype, const at::Device& device)
    : impl_(std::make_unique<Impl>(config, dtype, device)) {}
CausalLM::~CausalLM() = default;

const arch::ModelConfig& CausalLM::config() const { return impl_->config; }
at::ScalarType CausalLM::dtype() const { return impl_->dtype; }
at::Device CausalLM::device() const { return impl_->device; }
const std::optional<LoraConfig>& CausalLM::lora() const { return impl_->lora; }
void CausalLM::set_recompute(Recompute mode) { impl_->recompute = mode; }

std::vector<NamedTensor> CausalLM::parameters() const {
  std::vector<NamedTensor> result;
  for (const BaseParameter& parameter : impl_->base) {
    if (parameter.spec.tied_to.empty())
      result.push_back({parameter.spec.name, parameter.tensor, parameter.trainable});
  }
  return result;
}

std::vector<NamedTensor> CausalLM::trainable_parameters() const {
  std::vector<NamedTensor> result;
  for (const auto& list : {parameters(), adapter_parameters()}) {
    for (const NamedTensor& parameter : list) {
      if (parameter.trainable) result.push_back(parameter);
    }
  }
  return result;
}

void CausalLM::freeze(const std::vector<std::string>& patterns) {
  for (const std::string& pattern : patterns) {
    const bool thaws = pattern.rfind('!', 0) == 0;
    bool matched = false;
    try {
      const Pattern expression(thaws ? pattern.substr(1) : pattern);
      for (BaseParameter& parameter : impl_->base) {
        if (!parameter.spec.tied_to.empty() || !expression.is_found_in(parameter.spec.name))
          continue;
        parameter.trainable = thaws;
        matched = true;
      }
    } catch (const PatternError& error) {
      throw UsageError(tr("[freeze] {}", error.what()), error.hint());
    }
    if (!matched) {
      throw UsageError(tr("[freeze] '{}' matches no parameter; names look like '{}', '{}'", pattern,
                          impl_->base.front().spec.name,
                          impl_->base[impl_->base.size() / 2].spec.name));
    }
  }
  impl_->apply_trainable();
}

LayerPasses CausalLM::layer_passes() const {
  return {impl_->counters->forward, impl_->counters->backward};
}

at::Tensor CausalLM::forward_hidden(const ForwardInput& input) const {
  const int64_t n = input.ids_N.size(0);
  if (input.ids_N.dim() != 1 || input.positions_N.dim() != 1 || input.positions_N.size(0) != n ||
      input.segments.q_starts.empty() || input.segments.q_starts.back() != n) {
    throw InternalError("[model] ids, positions and segments must describe the same tokens; got " +
                        std::to_string(n) + " ids, " + std::to_string(input.positions_N.numel()) +
                        " positions");
  }
  const std::shared_ptr<const layers::Pass> pass = impl_->pass_for(input);
  const auto report = [&](int64_t index, const at::Tensor& hidden_NH) {
    if (input.on_hidden) input.on_hidden(index, hidden_NH);
  };
  // ids on the CPU are range-checked before they travel.
  at::Tensor hidden_NH = impl_->network.embedding.forward(input.ids_N.to(device()));
  report(0, hidden_NH);
  const int64_t num_layers = impl_->config.num_layers;
  for (int64_t i = 0; i < num_layers; ++i) {
    if (hidden_NH.requires_grad()) {
      hidden_NH.register_hook(
          [counters = impl_->counters](const at::Tensor&) { ++counters->backward; });
    }
    hidden_NH =
        impl_->network.layers[i]->forward(hidden_NH, pass, impl_->recompute == Recompute::kFull);
    ++impl_->counters->forward;
    if (i + 1 < num_layers) report(i + 1, hidden_NH);
  }
  hidden_NH = impl_->network.final_norm.forward(hidden_NH);
  report(num_layers, hidden_NH);
  return hidden_NH;
}

at::Tensor CausalLM::logits(const at::Tensor& hidden_nH) const {
  const layers::Linear& output = impl_->network.head.linear;
  const at::Tensor logits_nV =
      output.adapter ? layers::adapted_linear(hidden_nH, output.weight.tensor, *output.adapter)
                     : ops::linear(hidden_nH, impl_->network.head.effective_weight());
  return impl_->dtype == at::kDouble ? logits_nV : logits_nV.to(at::kFloat);
}

LossSum CausalLM::loss(const ForwardInput& input, const at::Tensor& targets_N,
                       double grad_scale) const {
  const at::Tensor hidden_NH = forward_hidden(input);
  ops::HeadOptions options;
  options.z_loss_weight = impl_->config.z_loss_weight;
  options.grad_scale = grad_scale;
  const ops::CrossEntropy result = ops::head_cross_entropy(
      hidden_NH, impl_->network.head.effective_weight(), targets_N.to(device()), options,
      impl_->head_addition(hidden_NH, input.dropout_keys_N));
  return {result.sum, result.num_targets, result.num_correct};
}

}  // namespace danlu::models
