// Layers of a chunk one after the other, each as its kind of recomputation says.
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include "base/error.h"
#include "layers/recompute.h"
#include "layers/saved_tensors.h"
#include "models/causal_lm_impl.h"

namespace danlu::models {
namespace {

using settings::LayerRecompute, settings::RecomputeGroup;

/// `layer` comes back when the gradient of `output`, which the layer after it gives, is there.
void come_back_with(const at::Tensor& output, const std::shared_ptr<layers::LeavingLayer>& layer) {
  if (!layer || !output.requires_grad()) return;
  output.register_hook([layer](const at::Tensor&) { layer->come_back(); });
}

}  // namespace

layers::Again again_of(LayerRecompute kind) {
  const bool selective = kind == LayerRecompute::kSelective;
  return {.attention_core = selective,
          .gated_product = selective,
          .activation_output = settings::makes_activation_again(kind),
          .norm_outputs = settings::makes_norms_again(kind)};
}

void CausalLM::Impl::count_backward(const at::Tensor& input_NH) const {
  if (!input_NH.requires_grad()) return;
  input_NH.register_hook([counters = counters](const at::Tensor&) { ++counters->backward; });
}

const layers::Block& CausalLM::Impl::Through::block(int64_t number) const {
  const auto found = blocks.find(number);
  if (found == blocks.end())
    throw InternalError("[network] layer " + std::to_string(number) + " is another stage's");
  return *found->second;
}

at::Tensor CausalLM::Impl::through_layers(const ForwardInput& input, at::Tensor hidden_NH,
                                          int64_t chunk) const {
  const Through through{.blocks = network.layers,
                        .groups = memory.groups(chunk),
                        .first_place = stage().chain.layer(0),
                        .pass = pass_for(input),
                        .done =
                            [&](int64_t layer, const at::Tensor& output_NH) {
                              ++counters->forward;
                              if (input.on_hidden && layer + 1 < config.num_layers)
                                input.on_hidden(layer + 1, output_NH);
                            },
                        .begin = [this](const at::Tensor& input_NH) { count_backward(input_NH); }};
  return through_blocks(through, std::move(hidden_NH), chunk);
}

at::Tensor CausalLM::Impl::through_blocks(const Through& through, at::Tensor hidden_NH,
                                          int64_t chunk) const {
  std::shared_ptr<layers::LeavingLayer> before;
  const bool may_leave = &through.blocks == &network.layers;  // a tower's activations stay
  for (const RecomputeGroup& group : through.groups) {
    through.begin(hidden_NH);
    const auto layer =
        may_leave ? memory.leaving_layer(group, chunk, hidden_NH, *through.pass) : nullptr;
    const layers::Leaving leaving = memory.parts_of(layer.get());
    if (group.kind == LayerRecompute::kFull) {
      hidden_NH = through_group(group, hidden_NH, through, leaving);
    } else {
      hidden_NH = memory.pass_place(through.place(group.first), hidden_NH, [&] {
        return through.block(group.first)
            .forward(hidden_NH, through.pass, again_of(group.kind), leaving);
      });
      through.done(group.first, hidden_NH);
    }
    come_back_with(hidden_NH, before);
    if (may_leave) memory.leave(layer);
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
                             blocks = &through.blocks, begin = through.begin,
                             first = &through](const std::vector<at::Tensor>& inputs) {
    const bool is_again = keeps && at::GradMode::is_enabled();
    at::Tensor layer_NH = inputs[0];
    for (int64_t i = group.first; i < group.end; ++i) {
      if (is_again) {  // every place of the group is there (parallel/store.h)
        if (i > group.first) begin(layer_NH);
        layer_NH = blocks->at(i)->forward(layer_NH, pass, {}, {});
        continue;
      }
      memory.enter_place(first->place(i), {});
      layer_NH = first->block(i).forward(layer_NH, first->pass, {}, {});
      memory.leave_place(first->place(i), keeps);
      first->done(i, layer_NH);
    }
    return layer_NH;
  };
  std::vector<at::Tensor> parameters;
  for (int64_t i = group.first; i < group.end; ++i) {
    const auto read = layers::tensors_of(through.block(i));
    parameters.insert(parameters.end(), read.begin(), read.end());
  }
  memory.reach_backward_with(hidden_NH, through.place(group.first) - 1);
  const auto scope = leaving.scope(leaving.input_norm);
  return layers::recomputed(body, {hidden_NH}, parameters);
}

}  // namespace danlu::models
