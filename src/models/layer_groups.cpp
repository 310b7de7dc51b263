// Layers of a chunk one after the other, each as its kind of recomputation says.
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include "layers/recompute.h"
#include "layers/saved_tensors.h"
#include "models/causal_lm_impl.h"

namespace danlu::models {
namespace {

using settings::LayerRecompute, settings::RecomputeGroup;

layers::Again again_of(LayerRecompute kind) {
  const bool selective = kind == LayerRecompute::kSelective;
  return {.attention_core = selective,
          .gated_product = selective,
          .activation_output = kind == LayerRecompute::kActivationFunction,
          .norm_outputs = kind == LayerRecompute::kNorm};
}

/// `layer` comes back when the gradient of `output`, which the layer behind it gives, is there.
void come_back_with(const at::Tensor& output, const std::shared_ptr<layers::LeavingLayer>& layer) {
  if (!layer || !output.requires_grad()) return;
  output.register_hook([layer](const at::Tensor&) { layer->come_back(); });
}

}  // namespace

void CausalLM::Impl::count_backward(const at::Tensor& input_NH) const {
  if (!input_NH.requires_grad()) return;
  input_NH.register_hook([counters = counters](const at::Tensor&) { ++counters->backward; });
}

at::Tensor CausalLM::Impl::through_layers(const ForwardInput& input, at::Tensor hidden_NH,
                                          int64_t chunk) const {
  const Through through{pass_for(input), [&](int64_t layer, const at::Tensor& output_NH) {
                          ++counters->forward;
                          if (input.on_hidden && layer + 1 < config.num_layers)
                            input.on_hidden(layer + 1, output_NH);
                        }};
  std::shared_ptr<layers::LeavingLayer> before;
  for (const RecomputeGroup& group : memory.groups(chunk)) {
    count_backward(hidden_NH);
    const auto layer = memory.leaving_layer(group, chunk, hidden_NH, *through.pass);
    const layers::Leaving leaving = memory.parts_of(layer.get());
    if (group.kind == LayerRecompute::kFull) {
      hidden_NH = through_group(group, hidden_NH, through, leaving);
    } else {
      hidden_NH = memory.pass_place(arch::place_of_layer(group.first), hidden_NH, [&] {
        return network.layer(group.first)
            .forward(hidden_NH, through.pass, again_of(group.kind), leaving);
      });
      through.done(group.first, hidden_NH);
    }
    come_back_with(hidden_NH, before);
    if (layer) memory.leave(layer);
    before = layer;
  }
  return hidden_NH;
}

at::Tensor CausalLM::Impl::through_group(const settings::RecomputeGroup& group,
                                         const at::Tensor& hidden_NH, const Through& through,
                                         const layers::Leaving& leaving) const {
  const bool keeps = at::GradMode::is_enabled();
  // `first` lives as long as the forward, so the second run must not touch it. Layers give what
  // they have beside hidden states in the forward alone.
  const auto silent = std::make_shared<layers::Pass>(*through.pass);
  silent->results = nullptr;
  const layers::Body body = [this, group, keeps, pass = std::shared_ptr<const layers::Pass>(silent),
                             first = &through](const std::vector<at::Tensor>& inputs) {
    const bool is_again = keeps && at::GradMode::is_enabled();
    at::Tensor layer_NH = inputs[0];
    for (int64_t i = group.first; i < group.end; ++i) {
      if (is_again) {  // every place of the group is there (parallel/store.h)
        if (i > group.first) count_backward(layer_NH);
        layer_NH = network.layer(i).forward(layer_NH, pass, {}, {});
        continue;
      }
      memory.enter_place(arch::place_of_layer(i), {});
      layer_NH = network.layer(i).forward(layer_NH, first->pass, {}, {});
      memory.leave_place(arch::place_of_layer(i), keeps);
      first->done(i, layer_NH);
    }
    return layer_NH;
  };
  std::vector<at::Tensor> parameters;
  for (int64_t i = group.first; i < group.end; ++i) {
    const auto read = layers::tensors_of(network.layer(i));
    parameters.insert(parameters.end(), read.begin(), read.end());
  }
  memory.reach_backward_with(hidden_NH, arch::place_of_layer(group.first) - 1);
  const auto scope = leaving.scope(leaving.input_norm);
  return layers::recomputed(body, {hidden_NH}, parameters);
}

}  // namespace danlu::models
