// Layers that predict further ahead, in passes.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>

#include <algorithm>

#include "arch/prediction.h"
#include "base/error.h"
#include "base/ignore_label.h"
#include "device/sent.h"
#include "layers/balance.h"
#include "models/causal_lm_impl.h"
#include "ops/pointwise.h"

namespace danlu::models {
namespace {

/// What stands `by` places after each row of the pass in the same segment; `filler` where nothing
/// does. values_A: of all tokens of the segments, on the host.
at::Tensor moved_on(const at::Tensor& values_A, const ForwardInput& input, int64_t by,
                    int64_t filler) {
  const std::vector<int64_t>& starts = input.segments.q_starts;
  const at::Tensor moved_A = at::full({starts.back()}, filler, values_A.options());
  for (size_t s = 0; s + 1 < starts.size(); ++s) {
    // Behind the tokens there may be filling, which no value is of.
    const int64_t end = std::min(starts[s + 1], values_A.size(0)), count = end - starts[s] - by;
    if (count > 0)
      moved_A.narrow(0, starts[s], count).copy_(values_A.narrow(0, starts[s] + by, count));
  }
  if (input.rows.empty()) return moved_A;
  const at::Tensor moved_N = at::full({input.ids_N.size(0)}, filler, values_A.options());
  int64_t at = 0;
  for (const RowRange& range : input.rows) {
    moved_N.narrow(0, at, range.size()).copy_(moved_A.narrow(0, range.begin, range.size()));
    at += range.size();
  }
  return moved_N;
}

/// What training asks of routers, without a balance loss over all layers at once, which is over
/// those of the model.
std::shared_ptr<const layers::Balance> without_loss_of_model(
    const std::shared_ptr<const layers::Balance>& balance) {
  if (!balance || !balance->of_model) return balance;
  auto own = std::make_shared<layers::Balance>(*balance);
  own->of_model = nullptr;
  own->training.aux_loss_coef = 0;
  return own;
}

}  // namespace

void CausalLM::Impl::predict(
    const ForwardInput& input, at::Tensor hidden_NH,
    const std::function<void(int64_t depth, const at::Tensor& hidden_NH)>& see) const {
  const auto full = std::make_shared<layers::Pass>(*pass_for(input));
  full->balance = without_loss_of_model(full->balance);
  const auto& groups = memory.groups(stage().num_chunks() - 1);
  const auto kind = groups.empty() ? settings::LayerRecompute::kNone : groups.back().kind;
  const at::Tensor ids_A = input.prediction ? input.prediction->ids_A : input.ids_N.cpu();
  const auto last = static_cast<int64_t>(network.predictions.size());
  for (int64_t depth = 1; depth <= last; ++depth) {
    const layers::Prediction& layer = network.predictions[static_cast<size_t>(depth - 1)];
    const at::Tensor next_ids_N = device::sent(moved_on(ids_A, input, depth, 0), device);
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
                    output_NH, moved_on(asked.targets_A, input, depth, kIgnoreLabel), options,
                    head_pass(input));
            result_NH = layers::with_gradient_of(result_NH, loss.sum, loss.factor);
            if (!is_counted) return;
            input.results->add_mean(arch::prediction_loss_name(depth), loss.sum,
                                    static_cast<double>(loss.num_targets));
          });
  return result_NH;
}

at::Tensor CausalLM::forward_prediction(const ForwardInput& input,
                                        const at::Tensor& hidden_NH) const {
  if (impl_->memory.store() || impl_->mesh.shape().size() > impl_->mesh.tensor().size() ||
      impl_->network.predictions.empty())
    throw InternalError("[model] guesses come from a layer that only the tensor axis cuts");
  return impl_->network.predictions.front().forward(
      hidden_NH, device::sent(input.ids_N, impl_->device), impl_->pass_for(input), {}, false);
}

at::Tensor CausalLM::prediction_logits(const at::Tensor& made_nH) const {
  const layers::Prediction& layer = impl_->network.predictions.front();
  return layer.head.logits(layer.norm.forward(made_nH)).to(at::kFloat);
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
