// Layers that predict further ahead, in passes.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/full.h>

#include "arch/prediction.h"
#include "base/error.h"
#include "base/ignore_label.h"
#include "layers/balance.h"
#include "models/causal_lm_impl.h"
#include "ops/pointwise.h"

namespace danlu::models {
namespace {

/// What stands `by` places further on in the same segment; `filler` where nothing does. On the
/// host.
at::Tensor moved_on(const at::Tensor& values_N, const ops::Segments& segments, int64_t by,
                    int64_t filler) {
  const at::Tensor moved_N = at::full(values_N.sizes(), filler, values_N.options());
  for (size_t s = 0; s + 1 < segments.q_starts.size(); ++s) {
    const int64_t begin = segments.q_starts[s], count = segments.q_starts[s + 1] - begin - by;
    if (count > 0) moved_N.narrow(0, begin, count).copy_(values_N.narrow(0, begin + by, count));
  }
  return moved_N;
}

}  // namespace

void CausalLM::Impl::predict(
    const ForwardInput& input, at::Tensor hidden_NH,
    const std::function<void(int64_t depth, const at::Tensor& hidden_NH)>& see) const {
  const auto full = std::make_shared<layers::Pass>(*pass_for(input));
  // A balance loss over all layers at once is over those of the model.
  if (full->balance && full->balance->of_model) full->balance = nullptr;
  const auto& groups = memory.groups(stage().num_chunks() - 1);
  const auto kind = groups.empty() ? settings::LayerRecompute::kNone : groups.back().kind;
  const at::Tensor ids_N = input.ids_N.cpu();
  const auto last = static_cast<int64_t>(network.predictions.size());
  for (int64_t depth = 1; depth <= last; ++depth) {
    const layers::Prediction& layer = network.predictions[static_cast<size_t>(depth - 1)];
    const at::Tensor next_ids_N = moved_on(ids_N, input.segments, depth, 0).to(device);
    hidden_NH = layer.forward(hidden_NH, next_ids_N, full, again_of(kind),
                              kind == settings::LayerRecompute::kFull);
    const auto outputs = depth < last ? ops::shared_by(2, hidden_NH) : std::vector{hidden_NH};
    see(depth, layer.norm.forward(outputs.front()));
    hidden_NH = outputs.back();
  }
}

at::Tensor CausalLM::Impl::with_predictions(const ForwardInput& input, const at::Tensor& hidden_NH,
                                            const at::Tensor& normed_NH) const {
  const PredictionPass& asked = *input.prediction;
  if (!mesh.context().is_alone())
    throw InternalError("[model] a place must know the tokens behind it");
  const int64_t more = input.ids_N.size(0) - asked.targets_N.size(0);
  const at::Tensor targets_N = at::constant_pad_nd(asked.targets_N, {0, more}, kIgnoreLabel);
  const auto normed = asked.normed ? ops::shared_by(2, normed_NH) : std::vector{normed_NH};
  at::Tensor result_NH = normed[0];
  // Every rank of the tensor axis finds the whole loss; figures are summed over them where they
  // share rows.
  const bool is_counted = asked.counts && input.results &&
                          (!mesh.region().is_sequence() || mesh.region().group().rank() == 0);
  predict(input, asked.normed ? normed.back() : hidden_NH,
          [&](int64_t depth, const at::Tensor& output_NH) {
            ops::HeadOptions options;
            options.z_loss_weight = config.z_loss_weight;
            options.grad_scale = asked.factor;
            const ops::CrossEntropy loss =
                network.predictions[static_cast<size_t>(depth - 1)].head.loss(
                    output_NH, moved_on(targets_N, input.segments, depth, kIgnoreLabel), options,
                    head_pass(input));
            result_NH = layers::with_gradient_of(result_NH, loss.sum, loss.factor);
            if (!is_counted) return;
            input.results->add_mean(arch::prediction_loss_name(depth), loss.sum,
                                    static_cast<double>(loss.num_targets));
          });
  return result_NH;
}

std::vector<at::Tensor> CausalLM::predicted_logits(const ForwardInput& input, bool normed) const {
  if (impl_->memory.store() || impl_->mesh.shape().size() > 1)
    throw InternalError("[model] logits of layers that predict further ahead are of one rank");
  const at::Tensor hidden_NH =
      impl_->through_layers(input, impl_->embedded(input, {}), /*chunk=*/0);
  std::vector<at::Tensor> logits;
  impl_->predict(
      input, normed ? impl_->network.final_norm.forward(hidden_NH) : hidden_NH,
      [&](int64_t depth, const at::Tensor& output_NH) {
        logits.push_back(
            impl_->network.predictions[static_cast<size_t>(depth - 1)].head.logits(output_NH).to(
                at::kFloat));
      });
  return logits;
}

}  // namespace danlu::models
