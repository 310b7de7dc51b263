#include "models/training_memory.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include "base/at_exit.h"
#include "base/error.h"
#include "device/late_memory.h"
#include "models/causal_lm_impl.h"

namespace danlu::models {

TrainingMemory::TrainingMemory(const arch::ModelConfig& config, const parallel::Mesh& mesh,
                               const Network& network, const at::Device& device)
    : config_(config), mesh_(mesh), network_(network), device_(device) {
  divide_into_groups();
}

void TrainingMemory::set_recompute(Recompute mode) {
  set_recompute(settings::RecomputeFlags{.granularity = settings::recompute_name(mode)});
}

void TrainingMemory::set_recompute(const settings::RecomputeFlags& flags) {
  recompute_ = flags;
  divide_into_groups();
}

void TrainingMemory::divide_into_groups() {
  std::vector<parallel::Places::Run> joint;
  groups_.clear();
  tower_groups_.clear();
  const auto divide = [&](const arch::LayerRange& range, int64_t first_place) {
    std::vector<settings::RecomputeGroup> groups =
        settings::recompute_groups(recompute_, range.end - range.first);
    for (settings::RecomputeGroup& group : groups) {
      group.first += range.first;
      group.end += range.first;
      if (group.end - group.first > 1)
        joint.push_back({first_place + group.first, first_place + group.end - 1});
    }
    return groups;
  };
  const arch::Chain& chain = stage().chain;
  for (int64_t chunk = 0; chunk < stage().num_chunks(); ++chunk) {
    tower_groups_.push_back(divide(stage().blocks_of(chunk), chain.block(0)));
    groups_.push_back(divide(stage().layers_of(chunk), chain.layer(0)));
  }
  if (store_) store_->join_in_backward(std::move(joint));
}

void TrainingMemory::set_activation_offload(const settings::ActivationOffload& flags) {
  using settings::OffloadTo;
  if (flags.to == OffloadTo::kHost && device_.is_cpu())
    throw InternalError("[model] activations of a CPU are in host memory as it is");
  offload_flags_ = flags;
  offload_.reset();
  if (flags.to == OffloadTo::kNone) return;
  offload_ = std::make_unique<layers::Offload>(
      device_, flags.to == OffloadTo::kFile ? flags.directory : std::filesystem::path());
}

MovedBytes TrainingMemory::moved_activations() const {
  if (!offload_) return {};
  return {offload_->bytes_out(), offload_->bytes_back()};
}

std::shared_ptr<layers::LeavingLayer> TrainingMemory::leaving_layer(
    const settings::RecomputeGroup& group, int64_t chunk, const at::Tensor& hidden_NH,
    const layers::Pass& pass) const {
  const int64_t first = stage().layers_of(chunk).first;
  if (!offload_ || !at::GradMode::is_enabled() || !offload_flags_.takes(group.first - first))
    return nullptr;
  auto layer = offload_->layer();
  std::vector<at::Tensor> living{pass.rotary.cos_NE, pass.rotary.sin_NE, pass.dropout_keys_N};
  for (int64_t i = group.first; i < group.end; ++i) {
    const auto read = layers::tensors_of(*network_.layers.at(i));
    living.insert(living.end(), read.begin(), read.end());
  }
  // What another stage gave is held until its gradient is sent.
  if (hidden_NH.is_leaf() && hidden_NH.requires_grad()) living.push_back(hidden_NH);
  layer->stay(living);
  return layer;
}

layers::Leaving TrainingMemory::parts_of(layers::LeavingLayer* layer) const {
  return {.layer = layer,
          .input_norm = offload_flags_.input_norm,
          .self_attention = offload_flags_.self_attention,
          .post_attention_norm = offload_flags_.post_attention_norm,
          .mlp = offload_flags_.mlp};
}

parallel::Places::Run TrainingMemory::run_of(int64_t chunk) const {
  return {stage().chunk(chunk).first, stage().chunk(chunk).end - 1};
}

parallel::Places TrainingMemory::places() const {
  // Neither pixels nor ids have gradients, for which alone the weights would be asked for.
  const arch::Chain& chain = stage().chain;
  parallel::Places places{{}, chain.head(), {}};
  // A norm's backward reads its weight.
  if (!config_.norms_embedding) places.unread_in_backward.push_back(chain.embedding());
  if (chain.has_tower()) places.unread_in_backward.push_back(chain.patches());
  for (int64_t chunk = 0; chunk < stage().num_chunks(); ++chunk)
    places.runs.push_back(run_of(chunk));
  return places;
}

parallel::ParameterStore& TrainingMemory::keep(const parallel::Keeping& keeping,
                                               const std::vector<Parameter*>& base,
                                               const std::vector<Parameter*>& adapters,
                                               bool holds_values) {
  if (!store_) {
    store_ = std::make_unique<parallel::ParameterStore>(mesh_, keeping, places());
    for (const Parameter* parameter : base) {
      if (holds_values) device::give_memory(parameter->held());
    }
    store_->lay_out(base, holds_values);
    divide_into_groups();
  }
  if (!adapters.empty() && !has_stored_adapters_) {
    store_->lay_out(adapters, /*keeps_values=*/true);
    has_stored_adapters_ = true;
  }
  return *store_;
}

parallel::ParameterStore& keep(CausalLM& model, const parallel::Keeping& keeping,
                               bool holds_values) {
  CausalLM::Impl& impl = model.impl();
  return impl.memory.keep(keeping, impl.base(), impl.adapters(), holds_values);
}

void TrainingMemory::settle() const {
  if (store_) store_->settle();
}

void TrainingMemory::with_all(const std::function<void()>& use) {
  if (!store_) return use();
  std::vector<int64_t> places;
  for (int64_t chunk = 0; chunk < stage().num_chunks(); ++chunk) {
    const parallel::Places::Run run = run_of(chunk);
    for (int64_t place = run.first; place <= run.last; ++place) places.push_back(place);
  }
  const std::function<void(size_t)> enter = [&](size_t index) {
    if (index < places.size()) return store_->with(places[index], [&] { enter(index + 1); });
    has_all_ = true;
    const AtExit forget([this] { has_all_ = false; });
    use();
  };
  enter(0);
}

void TrainingMemory::forward_idly(bool keeps, int64_t chunk) const {
  store_->forward_idly(static_cast<size_t>(chunk), keeps);
}

void TrainingMemory::backward_idly(int64_t chunk) const {
  store_->backward_idly(static_cast<size_t>(chunk));
}

void TrainingMemory::with_place(int64_t place, const std::function<void()>& body) const {
  if (!store_) return body();
  store_->with(place, body);
}

void TrainingMemory::enter_place(int64_t place, const at::Tensor& input) const {
  if (store_ && !has_all_) store_->before_forward(place);
  reach_backward_with(input, place - 1);
}

void TrainingMemory::reach_backward_with(const at::Tensor& given, int64_t place) const {
  // What comes from another stage gets its gradient in no order with those of weights.
  if (!store_ || !given.defined() || !given.requires_grad() || given.is_leaf()) return;
  given.register_hook(
      [store = store_.get(), place](const at::Tensor&) { store->reach_backward(place); });
}

void TrainingMemory::begin_backward_at(const at::Tensor& last, int64_t place) const {
  if (!store_ || !last.requires_grad()) return;
  last.register_hook(
      [store = store_.get(), place](const at::Tensor&) { store->begin_backward(place); });
}

void TrainingMemory::leave_place(int64_t place, bool keeps) const {
  if (store_ && !has_all_) store_->after_forward(place, keeps);
}

at::Tensor TrainingMemory::pass_place(int64_t place, const at::Tensor& input,
                                      const std::function<at::Tensor()>& body) const {
  enter_place(place, input);
  const at::Tensor output = body();
  leave_place(place, at::GradMode::is_enabled());
  return output;
}

}  // namespace danlu::models
