#include "train/step.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/rng.h"
#include "models/tensor_io.h"

namespace danlu::train {
namespace step_detail {

at::Tensor to_tensor(const std::vector<int64_t>& values, const at::Device& device) {
  // A view of the batch's memory: the caller keeps the batch until the pass is over.
  at::Tensor host = at::from_blob(const_cast<int64_t*>(values.data()),
                                  {static_cast<int64_t>(values.size())}, at::kLong);
  return device.is_cpu() ? host : host.to(device);
}

struct PassSums {
  double loss = 0, correct = 0;
};

struct Counts {
  double targets, tokens, samples = 0;
};

/// Of the whole step, over the data axis.
Counts count(const data::StepBatches& batches, const parallel::Group& data) {
  Counts counts{static_cast<double>(batches.num_targets), static_cast<double>(batches.num_tokens)};
  for (const data::Batch& batch : batches.micro_batches)
    counts.samples += static_cast<double>(batch.num_samples);
  sum_over(data, {&counts.targets, &counts.tokens, &counts.samples});
  return counts;
}

at::Tensor dropout_keys(const data::Batch& batch, uint64_t seed) {
  std::vector<int64_t> keys;
  keys.reserve(batch.token_keys.size());
  for (const uint64_t token : batch.token_keys)
    keys.push_back(static_cast<int64_t>(mix64(seed, token)));
  return at::tensor(keys, at::kLong);
}

void forward_backward(TrainState& state, const data::Batch& batch, uint64_t seed, double scale,
                      PassSums& sums) {
  const at::Device device = state.model->device();
  models::ForwardInput input = forward_input(batch, device);
  if (state.model->lora() && state.model->lora()->dropout > 0)
    input.dropout_keys_N = dropout_keys(batch, seed);
  const models::LossSum loss = state.model->loss(input, target_tensor(batch, device), scale);
  (loss.sum * scale).backward();
  state.gradients->collect();
  sums.loss += loss.sum.item<double>();
  sums.correct += static_cast<double>(loss.num_correct);
}

}  // namespace step_detail

void sum_over(const parallel::Group& group, std::initializer_list<double*> numbers) {
  if (group.is_alone()) return;
  const std::vector<double*> places = numbers;
  at::Tensor values = at::empty({static_cast<int64_t>(places.size())}, at::kDouble);
  for (size_t i = 0; i < places.size(); ++i) values.data_ptr<double>()[i] = *places[i];
  group.all_reduce_sum(values);
  for (size_t i = 0; i < places.size(); ++i) *places[i] = values.data_ptr<double>()[i];
}

models::ForwardInput forward_input(const data::Batch& batch, const at::Device& device) {
  models::ForwardInput input;
  input.ids_N = step_detail::to_tensor(batch.ids, device);
  input.positions_N = step_detail::to_tensor(batch.positions, device);
  input.segments.q_starts.assign(batch.segment_starts.begin(), batch.segment_starts.end());
  input.segments.k_starts = input.segments.q_starts;
  return input;
}

at::Tensor target_tensor(const data::Batch& batch, const at::Device& device) {
  return step_detail::to_tensor(batch.targets, device);
}

void throw_diverged(int64_t step, const std::string& what) {
  throw NumericError(tr("[train] step {}: {}: the training has diverged", step, what),
                     tr("lower --lr or --weight_decay, raise --warmup_ratio, or use --dtype bf16 "
                        "or fp32; earlier checkpoints are intact"));
}

void require_finite(const TrainState& state) {
  const auto check = [&](const char* kind, const std::string& name, const at::Tensor& tensor) {
    if (!models::all_finite(tensor))
      throw_diverged(state.step, tr("{} {} is not finite", kind, name));
  };
  for (const parallel::Parameter& parameter : state.optimizer->parameters())
    check("the weight", parameter.name(), parameter.tensor);
  for (const parallel::Parameter& tensor : state.optimizer->state(/*exact_weights=*/false))
    check("the optimizer's", tensor.name(), tensor.tensor);
}

StepResult run_step(TrainState& state, const data::StepBatches& batches, const TrainConfig& config,
                    const optim::ScheduleConfig& schedule) {
  const parallel::Group& data = state.model->mesh().data();
  const step_detail::Counts counts = step_detail::count(batches, data);
  const double targets = counts.targets;
  StepResult result;
  result.loss_scale = state.loss_scaler.scale();
  result.num_tokens = static_cast<int64_t>(counts.tokens);
  result.num_targets = static_cast<int64_t>(counts.targets);
  result.num_samples = static_cast<int64_t>(counts.samples);
  if (result.num_targets == 0) {
    throw DataError(
        tr("[train] step {}: none of its {} tokens is a target", state.step + 1, result.num_tokens),
        tr("check the masks: the banner shows a decoded example"));
  }
  result.lr = optim::learning_rate_at(schedule, state.optimizer->updates());

  step_detail::PassSums sums;
  state.gradients->zero();
  const uint64_t seed = mix64(config.seed, static_cast<uint64_t>(state.step));
  for (const data::Batch& batch : batches.micro_batches) {
    if (batch.num_targets > 0)
      step_detail::forward_backward(state, batch, seed, result.loss_scale / targets, sums);
  }
  sum_over(data, {&sums.loss, &sums.correct});
  result.loss = sums.loss / targets;
  result.token_accuracy = sums.correct / targets;

  state.gradients->reduce();
  result.grad_norm = state.gradients->norm(1.0 / result.loss_scale);
  result.skipped = !std::isfinite(result.grad_norm) || !std::isfinite(result.loss);
  state.loss_scaler.update(result.skipped);
  if (result.skipped) {
    result.bad_parameters = state.gradients->non_finite(3);
    ++state.bad_steps_in_row;
    ++state.skipped_steps;
  } else {
    // The same 1e-6 as torch's clip_grad_norm_.
    const double clip = config.max_grad_norm > 0
                            ? std::min(1.0, config.max_grad_norm / (result.grad_norm + 1e-6))
                            : 1.0;
    state.optimizer->step(*state.gradients, result.lr, clip / result.loss_scale);
    state.bad_steps_in_row = 0;
  }
  ++state.step;
  state.tokens_seen += result.num_tokens;
  return result;
}

}  // namespace danlu::train
