#include "models/causal_lm.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/constant_pad_nd.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/pattern.h"
#include "models/causal_lm_impl.h"
#include "models/rope.h"

namespace danlu::models {
namespace causal_lm_detail {

/// Errors: UsageError naming what the tensor axis does not divide, and sizes that do.
void require_divides(const arch::ModelConfig& c, int64_t ranks) {
  const auto fits = [&](int64_t n) {
    return c.num_heads % n == 0 && (c.num_kv_heads % n == 0 || n % c.num_kv_heads == 0) &&
           c.ffn_size % n == 0;
  };
  if (fits(ranks)) return;
  std::vector<int64_t> sizes;
  for (int64_t n = 1; n <= c.num_heads; ++n) {
    if (fits(n)) sizes.push_back(n);
  }
  throw UsageError(tr("[parallel] {} attention heads, {} key-value heads and a feed-forward width "
                      "of {} do not divide over {} tensor-parallel ranks",
                      c.num_heads, c.num_kv_heads, c.ffn_size, ranks),
                   tr("sizes that do: {}", fmt::join(sizes, ", ")));
}

/// `input` with tokens at the end, in a sequence of their own, so that the rows divide over ranks.
ForwardInput padded(const ForwardInput& input, int64_t ranks) {
  const int64_t n = input.ids_N.size(0), more = (ranks - n % ranks) % ranks;
  if (more == 0) return input;
  ForwardInput result = input;
  result.ids_N = at::constant_pad_nd(input.ids_N, {0, more});
  result.positions_N = at::constant_pad_nd(input.positions_N, {0, more});
  if (input.dropout_keys_N.defined())
    result.dropout_keys_N = at::constant_pad_nd(input.dropout_keys_N, {0, more});
  result.segments.q_starts.push_back(n + more);
  result.segments.k_starts.push_back(result.segments.k_starts.back() + more);
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

CausalLM::Impl::Impl(const arch::ModelConfig& model_config, const parallel::Mesh& of,
                     at::ScalarType scalar_type, const at::Device& at_device)
    : config((model_config.validate(), require_runnable(model_config),
              causal_lm_detail::require_divides(model_config, of.shape().tensor), model_config)),
      mesh(of),
      dtype(scalar_type),
      device(at_device),
      network(config, mesh, at::TensorOptions(dtype).device(device)) {}

std::vector<Parameter*> CausalLM::Impl::base() {
  std::vector<Parameter*> result = network.parameters;
  for (SavedModule& module : saved_modules)
    std::replace(result.begin(), result.end(), module.place, &module.original);
  return result;
}

void CausalLM::Impl::apply_trainable() {
  for (Parameter* parameter : base()) {
    if (parameter->spec.tied_to.empty()) parameter->tensor.requires_grad_(parameter->trainable);
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

CausalLM::CausalLM(const arch::ModelConfig& config, const parallel::Mesh& mesh,
                   at::ScalarType dtype, const at::Device& device)
    : impl_(std::make_unique<Impl>(config, mesh, dtype, device)) {}
CausalLM::~CausalLM() = default;

const arch::ModelConfig& CausalLM::config() const { return impl_->config; }
const parallel::Mesh& CausalLM::mesh() const { return impl_->mesh; }
at::ScalarType CausalLM::dtype() const { return impl_->dtype; }
at::Device CausalLM::device() const { return impl_->device; }
const std::optional<LoraConfig>& CausalLM::lora() const { return impl_->lora; }
void CausalLM::set_recompute(Recompute mode) { impl_->recompute = mode; }

std::vector<Parameter> CausalLM::parameters() const {
  std::vector<Parameter> result;
  for (const Parameter* parameter : impl_->base()) {
    if (parameter->spec.tied_to.empty()) result.push_back(*parameter);
  }
  return result;
}

std::vector<Parameter> CausalLM::trainable_parameters() const {
  std::vector<Parameter> result;
  for (const auto& list : {parameters(), adapter_parameters()}) {
    for (const Parameter& parameter : list) {
      if (parameter.trainable) result.push_back(parameter);
    }
  }
  return result;
}

void CausalLM::freeze(const std::vector<std::string>& patterns) {
  const std::vector<Parameter*> base = impl_->base();
  for (const std::string& pattern : patterns) {
    const bool thaws = pattern.rfind('!', 0) == 0;
    bool matched = false;
    try {
      const Pattern expression(thaws ? pattern.substr(1) : pattern);
      for (Parameter* parameter : base) {
        if (!parameter->spec.tied_to.empty() || !expression.is_found_in(parameter->name()))
          continue;
        parameter->trainable = thaws;
        matched = true;
      }
    } catch (const PatternError& error) {
      throw UsageError(tr("[freeze] {}", error.what()), error.hint());
    }
    if (!matched) {
      throw UsageError(tr("[freeze] '{}' matches no parameter; names look like '{}', '{}'", pattern,
                          base.front()->name(), base[base.size() / 2]->name()));
    }
  }
  impl_->apply_trainable();
}

LayerPasses CausalLM::layer_passes() const {
  return {impl_->counters->forward, impl_->counters->backward};
}

at::Tensor CausalLM::Impl::hidden_rows(const ForwardInput& input) const {
  const int64_t n = input.ids_N.size(0);
  if (input.ids_N.dim() != 1 || input.positions_N.dim() != 1 || input.positions_N.size(0) != n ||
      input.segments.q_starts.empty() || input.segments.q_starts.back() != n) {
    throw InternalError("[model] ids, positions and segments must describe the same tokens; got " +
                        std::to_string(n) + " ids, " + std::to_string(input.positions_N.numel()) +
                        " positions");
  }
  const std::shared_ptr<const layers::Pass> pass = pass_for(input);
  const auto report = [&](int64_t index, const at::Tensor& hidden_NH) {
    if (input.on_hidden) input.on_hidden(index, hidden_NH);
  };
  // ids on the CPU are range-checked before they travel.
  at::Tensor hidden_NH = network.embedding.forward(input.ids_N.to(device));
  report(0, hidden_NH);
  for (int64_t i = 0; i < config.num_layers; ++i) {
    if (hidden_NH.requires_grad()) {
      hidden_NH.register_hook([counters = counters](const at::Tensor&) { ++counters->backward; });
    }
    hidden_NH = network.layers[static_cast<size_t>(i)]->forward(hidden_NH, pass,
                                                                recompute == Recompute::kFull);
    ++counters->forward;
    if (i + 1 < config.num_layers) report(i + 1, hidden_NH);
  }
  hidden_NH = network.final_norm.forward(hidden_NH);
  report(config.num_layers, hidden_NH);
  return hidden_NH;
}

at::Tensor CausalLM::forward_hidden(const ForwardInput& input) const {
  const parallel::Region region = impl_->mesh.region();
  if (!region.is_sequence()) return impl_->hidden_rows(input);
  if (input.cache || input.on_hidden)
    throw InternalError("[model] hidden states and caches are of all rows");
  const auto whole = causal_lm_detail::padded(input, region.group().size());
  return region.enter(impl_->hidden_rows(whole)).narrow(0, 0, input.ids_N.size(0));
}

at::Tensor CausalLM::logits(const at::Tensor& hidden_nH) const {
  const at::Tensor logits_nV = impl_->network.head.logits(hidden_nH);
  return impl_->dtype == at::kDouble ? logits_nV : logits_nV.to(at::kFloat);
}

LossSum CausalLM::loss(const ForwardInput& input, const at::Tensor& targets_N,
                       double grad_scale) const {
  const parallel::Region region = impl_->mesh.region();
  const int64_t ranks = region.is_sequence() ? region.group().size() : 1;
  const ForwardInput whole = causal_lm_detail::padded(input, ranks);
  const at::Tensor hidden_NH = impl_->hidden_rows(whole);
  ops::HeadOptions options;
  options.z_loss_weight = impl_->config.z_loss_weight;
  options.grad_scale = grad_scale;
  const int64_t more = whole.ids_N.size(0) - targets_N.size(0);
  const at::Tensor targets = at::constant_pad_nd(targets_N, {0, more}, kIgnoreLabel);
  const at::Tensor keys =
      whole.dropout_keys_N.defined() ? whole.dropout_keys_N.to(device()) : at::Tensor();
  const ops::CrossEntropy result =
      impl_->network.head.loss(hidden_NH, targets.to(device()), options, keys);
  return {result.sum, result.num_targets, result.num_correct};
}

}  // namespace danlu::models
