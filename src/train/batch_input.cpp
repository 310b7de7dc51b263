#include "train/batch_input.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>

#include "base/rng.h"
#include "train/visual_input.h"

namespace danlu::train {
namespace {

/// The batch's own memory; what of it is needed on a device goes there where it is needed.
at::Tensor to_tensor(const std::vector<int64_t>& values) {
  return at::from_blob(const_cast<int64_t*>(values.data()), {static_cast<int64_t>(values.size())},
                       at::kLong);
}

/// Without pictures and without dropout.
models::ForwardInput text_input(const data::Batch& batch) {
  models::ForwardInput input;
  input.ids_N = to_tensor(batch.ids);
  input.positions_N = to_tensor(batch.positions);
  input.segments.q_starts.assign(batch.segment_starts.begin(), batch.segment_starts.end());
  input.segments.k_starts = input.segments.q_starts;
  input.rows = batch.rows;
  input.segment_lengths = batch.segment_lengths;
  if (batch.is_filling) input.num_tokens = 0;
  return input;
}

/// f64 [N]: α / √(L H) of each token's segment.
at::Tensor noise_sizes(const data::Batch& batch, double alpha, int64_t hidden_size) {
  std::vector<double> sizes;
  sizes.reserve(batch.ids.size());
  for (const int64_t segment : data::segment_of_tokens(batch)) {
    const auto s = static_cast<size_t>(segment);
    const auto tokens = static_cast<double>(batch.segment_starts[s + 1] - batch.segment_starts[s]);
    sizes.push_back(alpha / std::sqrt(tokens * static_cast<double>(hidden_size)));
  }
  return at::tensor(sizes, at::kDouble);
}

}  // namespace

at::Tensor token_keys_of(const data::Batch& batch, uint64_t seed) {
  std::vector<int64_t> keys;
  keys.reserve(batch.token_keys.size());
  for (const uint64_t token : batch.token_keys)
    keys.push_back(static_cast<int64_t>(mix64(seed, token)));
  return at::tensor(keys, at::kLong);
}

at::Tensor targets_of(const data::Batch& batch) { return to_tensor(batch.targets); }

at::Tensor all_ids_of(const data::Batch& batch) {
  return to_tensor(batch.rows.empty() ? batch.ids : batch.all_ids);
}

at::Tensor all_targets_of(const data::Batch& batch) {
  return to_tensor(batch.rows.empty() ? batch.targets : batch.all_targets);
}

models::ForwardInput evaluation_input(const models::CausalLM& model, const data::Batch& batch,
                                      int64_t chunk, bool again) {
  models::ForwardInput input = text_input(batch);
  add_visuals(model, batch, 0, chunk, input, {.again = again});
  return input;
}

models::ForwardInput training_input(const models::CausalLM& model, const data::Batch& batch,
                                    const PassNoise& noise, int64_t chunk, double* waited_s) {
  models::ForwardInput input = text_input(batch);
  const bool drops = noise.drops && model.lora() && model.lora()->dropout > 0;
  if (drops) input.dropout_keys_N = token_keys_of(batch, noise.seed);
  if (noise.noise_alpha > 0 && model.stage().embeds_at(chunk)) {
    input.noise = {noise_sizes(batch, noise.noise_alpha, model.config().hidden_size),
                   drops ? input.dropout_keys_N : token_keys_of(batch, noise.seed)};
  }
  add_visuals(model, batch, noise.seed, chunk, input, {.waited_s = waited_s});
  return input;
}

std::vector<double> segment_weights(const data::Batch& batch, double weight_of_target) {
  std::vector<double> weights(batch.segment_starts.size() - 1, 0.0);
  const std::vector<int64_t> segments = data::segment_of_tokens(batch);
  for (size_t token = 0; token < segments.size(); ++token) {
    if (batch.targets[token] != kIgnoreLabel)
      weights[static_cast<size_t>(segments[token])] += weight_of_target;
  }
  return weights;
}

data::Batch filling(const parallel::Mesh& mesh) {
  // Each rank of the context axis has two blocks of a sequence (settings/context_cut.h).
  const auto tokens = static_cast<size_t>(2 * mesh.context().shape().size());
  data::Sample sample;
  sample.ids.assign(tokens, 0);
  sample.labels.assign(tokens, 0);
  data::Batch batch = own_part(mesh, data::make_batch({sample}));
  batch.is_filling = true;
  return batch;
}

LossOfFilling loss_of_filling(const models::CausalLM& stage, const at::Tensor& hidden_NH,
                              const models::ForwardInput& input) {
  if (stage.config().score) {
    const at::Tensor sum = stage.scores(hidden_NH, input, at::zeros({1}, at::kLong)).sum();
    return {sum, at::zeros_like(sum)};
  }
  const models::LossSum nothing =
      stage.head_loss(hidden_NH, input, at::zeros(input.ids_N.sizes(), at::kLong), 0);
  return {nothing.sum, nothing.factor};
}

void fill_up(std::vector<const data::Batch*>& batches, const arch::Schedule& schedule,
             const data::Batch& filler) {
  for (const arch::Action& action : schedule) {
    while (static_cast<int64_t>(batches.size()) <= action.micro_batch) batches.push_back(&filler);
  }
}

OwnParts::OwnParts(const parallel::Mesh& mesh, const std::vector<const data::Batch*>& whole) {
  for (const data::Batch* batch : whole)
    batches_.push_back(mesh.context().is_alone() ? batch
                                                 : &cut_.emplace_back(own_part(mesh, *batch)));
}

data::Batch own_part(const parallel::Mesh& mesh, const data::Batch& batch) {
  const parallel::Context& context = mesh.context();
  if (context.is_alone()) return batch;
  return data::part_of(batch, settings::context_rows(context.shape(), context.rank(),
                                                     static_cast<int64_t>(batch.ids.size())));
}

}  // namespace danlu::train
