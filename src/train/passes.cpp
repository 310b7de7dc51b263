#include "train/passes.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>

#include <map>
#include <utility>

#include "base/error.h"
#include "base/rng.h"
#include "models/training_memory.h"
#include "train/batch_input.h"
#include "train/visual_input.h"

namespace danlu::train {
namespace {

/// Makes keys of routers' noise other than those of dropout.
constexpr uint64_t kRouterNoise = 0x726f7574;

}  // namespace

Passes::Passes(const models::CausalLM& stage, const Objective& objective,
               optim::GradBuffer& gradients, StageLinks& links, ActionObserver* observer)
    : stage_(stage),
      objective_(objective),
      gradients_(gradients),
      links_(links),
      observer_(observer) {}

double Passes::weight_of_target(const data::Batch& batch) const {
  return objective_.weight_of_target(batch).value_or(factors_.weight_of_target);
}

void Passes::ask_for_predictions(const data::Batch& batch, models::ForwardInput& input) const {
  if (factors_.prediction.layers == 0) return;
  // A batch that is filling is passed for its exchanges alone, in which other ranks wait for this
  // one.
  const bool is_filling = batch.is_filling;
  const at::Tensor ids_A = all_ids_of(batch);
  const at::Tensor targets_A =
      is_filling ? at::zeros(ids_A.sizes(), at::kLong) : all_targets_of(batch);
  const double factor =
      factors_.scale * weight_of_target(batch) * factors_.prediction.factor_of_each();
  input.prediction = {ids_A, targets_A, is_filling ? 0 : factor, !is_filling,
                      factors_.prediction.normed};
}

void Passes::forward(Flight& flight, const data::Batch& batch, int64_t chunk) {
  models::ForwardInput input =
      training_input(stage_, batch, {factors_.dropout_seed, factors_.noise_alpha, factors_.drops},
                     chunk, &pixels_wait_s_);
  input.results = &results_;
  if (factors_.routers.changes_passes() && !batch.is_filling)
    input.routers = {factors_.routers, segment_weights(batch, weight_of_target(batch)),
                     factors_.routers.has_noise()
                         ? token_keys_of(batch, mix64(factors_.dropout_seed, kRouterNoise))
                         : at::Tensor()};
  input.loss_scale = factors_.scale;
  if (stage_.stage().ends_at(chunk)) ask_for_predictions(batch, input);
  if (flight.entered.defined()) flight.entered.requires_grad_(true);
  flight.left = stage_.forward(input, flight.entered, chunk);
  if (!stage_.stage().ends_at(chunk)) return;
  if (batch.is_filling) {
    const LossOfFilling nothing = loss_of_filling(stage_, flight.left, input);
    objective_.take_part(stage_);
    flight.left = nothing.sum;
    flight.grad = nothing.grad;
    return;
  }
  const Loss loss =
      objective_.evaluate(stage_, flight.left, input, batch, *flight.columns, factors_.scale);
  flight.left = loss.sum;
  flight.grad = grad_of_sum(loss, factors_.scale);
  losses_.push_back(loss.counted().detach());
  for (const auto& [name, metric] : loss.metrics) metrics_.add(name, metric);
}

void Passes::backward(Flight& flight, bool is_idle, int64_t chunk, bool last, bool later) {
  gradients_.begin_pass(last, later ? &flight.later : nullptr);
  if (is_idle) {
    stage_.memory().backward_idly(chunk);
  } else if (flight.left.requires_grad()) {  // else nothing here or before is trained
    torch::autograd::backward({flight.left}, flight.grad.defined()
                                                 ? std::vector<at::Tensor>{flight.grad}
                                                 : std::vector<at::Tensor>{});
  }
  flight.left = flight.grad = at::Tensor();
  gradients_.end_pass();
}

void Passes::act(const arch::Action& action, const data::Batch* batch, bool last, Flight& flight) {
  using arch::Work;
  const int64_t chunk = action.chunk;
  switch (action.work) {
    case Work::kReceiveHidden:
      if (batch) flight.entered = links_.receive_hidden();
      break;
    case Work::kForward:
      if (batch) {
        forward(flight, *batch, chunk);
      } else {
        stage_.memory().forward_idly(/*keeps=*/true, chunk);
        if (stage_.stage().ends_at(chunk)) objective_.take_part(stage_);
      }
      break;
    case Work::kSendHidden:
      if (batch) links_.send_hidden(flight.left.detach());
      break;
    case Work::kReceiveGrad:
      if (batch) flight.grad = links_.receive_grad();
      break;
    case Work::kBackward:
      backward(flight, !batch, chunk, last, /*later=*/false);
      break;
    case Work::kBackwardInput:
      backward(flight, !batch, chunk, last, /*later=*/true);
      break;
    case Work::kBackwardWeight:
      gradients_.add_later(flight.later, last);
      break;
    case Work::kSendGrad:
      if (batch) links_.send_grad(flight.entered.grad());
      flight.entered = at::Tensor();
      break;
  }
}

void Passes::expect(const arch::Schedule& schedule,
                    const std::vector<const data::Batch*>& batches) {
  for (const arch::Action& action : schedule) {
    if (action.micro_batch >= static_cast<int64_t>(batches.size())) continue;
    const models::PassSize size = size_of(*batches[static_cast<size_t>(action.micro_batch)]);
    if (action.work == arch::Work::kReceiveHidden) links_.expect_hidden(action.chunk, size);
    if (action.work == arch::Work::kReceiveGrad) links_.expect_grad(action.chunk, size);
  }
}

PassSums Passes::run(const arch::Schedule& schedule, const std::vector<const data::Batch*>& own,
                     const std::vector<Columns>& columns, const StepFactors& factors) {
  using arch::Work;
  const data::Batch filler = filling(stage_.mesh());
  std::vector<const data::Batch*> batches = own;
  if (stage_.mesh().shape().expert > 1) fill_up(batches, schedule, filler);
  losses_.clear();
  metrics_ = {};
  results_ = {};
  factors_ = factors;
  pixels_wait_s_ = 0;
  expect(schedule, batches);
  using Key = std::pair<int64_t, int64_t>;  // micro-batch and chunk
  std::map<Key, Flight> flights;
  std::map<Key, const arch::Action*> last_of;
  std::map<int64_t, const arch::Action*> last_gradients;  // of a chunk
  for (const arch::Action& action : schedule) {
    last_of[{action.micro_batch, action.chunk}] = &action;
    if (action.work == Work::kBackward || action.work == Work::kBackwardWeight)
      last_gradients[action.chunk] = &action;
  }
  for (const arch::Action& action : schedule) {
    const Key key{action.micro_batch, action.chunk};
    const auto index = static_cast<size_t>(action.micro_batch);
    const bool is_idle = index >= batches.size();
    if (index < columns.size()) flights[key].columns = &columns[index];
    if (observer_) observer_->begin(action);
    act(action, is_idle ? nullptr : batches[index], &action == last_gradients[action.chunk],
        flights[key]);
    if (observer_) observer_->end(action);
    if (last_of[key] == &action) flights.erase(key);
  }
  links_.finish();
  PassSums sums;
  for (const double loss : read_scalars(losses_)) sums.loss += loss;
  sums.metrics = metrics_.read();
  sums.results = results_;
  sums.pixels_wait_s = pixels_wait_s_;
  return sums;
}

}  // namespace danlu::train
