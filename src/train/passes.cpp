#include "train/passes.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/autograd.h>

namespace danlu::train {

Passes::Passes(const models::CausalLM& stage, const Objective& objective,
               optim::GradBuffer& gradients, StageLinks& links)
    : stage_(stage), objective_(objective), gradients_(gradients), links_(links) {}

void Passes::forward(Flight& flight, const data::Batch& batch, uint64_t dropout_seed,
                     double scale) {
  const models::ForwardInput input = training_input(stage_, batch, dropout_seed);
  if (flight.entered.defined()) flight.entered.requires_grad_(true);
  flight.left = stage_.forward(input, flight.entered);
  if (!stage_.stage().has_head) return;
  const Loss loss = objective_.evaluate(stage_, flight.left, input, batch, scale);
  flight.left = loss.sum * scale;
  losses_.push_back(loss.sum.detach());
  correct_.push_back(loss.correct);
}

void Passes::backward(Flight& flight, bool is_idle, bool last, bool later) {
  gradients_.begin_pass(last, later ? &flight.later : nullptr);
  if (is_idle) {
    stage_.backward_idly();
  } else if (flight.left.requires_grad()) {  // else nothing here or before is trained
    torch::autograd::backward({flight.left}, flight.grad.defined()
                                                 ? std::vector<at::Tensor>{flight.grad}
                                                 : std::vector<at::Tensor>{});
  }
  flight.left = flight.grad = at::Tensor();
  gradients_.end_pass();
}

PassSums Passes::run(const arch::Schedule& schedule, const std::vector<const data::Batch*>& batches,
                     uint64_t dropout_seed, double scale) {
  using arch::Work;
  losses_.clear();
  correct_.clear();
  std::map<int64_t, Flight> flights;
  std::map<int64_t, const arch::Action*> last_of;  ///< micro-batch
  const arch::Action* last_gradients = nullptr;
  for (const arch::Action& action : schedule) {
    last_of[action.micro_batch] = &action;
    if (action.work == Work::kBackward || action.work == Work::kBackwardWeight)
      last_gradients = &action;
  }
  for (const arch::Action& action : schedule) {
    const int64_t i = action.micro_batch;
    const bool is_idle = i >= static_cast<int64_t>(batches.size());
    const bool last = &action == last_gradients;
    Flight& flight = flights[i];
    const int64_t tokens =
        is_idle ? 0 : static_cast<int64_t>(batches[static_cast<size_t>(i)]->ids.size());
    switch (action.work) {
      case Work::kReceiveHidden:
        if (!is_idle) flight.entered = links_.receive_hidden(tokens);
        break;
      case Work::kForward:
        if (is_idle) {
          stage_.forward_idly(/*keeps=*/true);
        } else {
          forward(flight, *batches[static_cast<size_t>(i)], dropout_seed, scale);
        }
        break;
      case Work::kSendHidden:
        if (!is_idle) links_.send_hidden(flight.left.detach());
        break;
      case Work::kReceiveGrad:
        if (!is_idle) flight.grad = links_.receive_grad(tokens);
        break;
      case Work::kBackward:
        backward(flight, is_idle, last, /*later=*/false);
        break;
      case Work::kBackwardInput:
        backward(flight, is_idle, last, /*later=*/true);
        break;
      case Work::kBackwardWeight:
        gradients_.add_later(flight.later, last);
        break;
      case Work::kSendGrad:
        if (!is_idle) links_.send_grad(flight.entered.grad());
        flight.entered = at::Tensor();
        break;
    }
    if (last_of[i] == &action) flights.erase(i);
  }
  links_.finish();
  PassSums sums;
  for (const at::Tensor& loss : losses_) sums.loss += loss.item<double>();
  for (const at::Tensor& correct : correct_) sums.correct += correct.item<double>();
  return sums;
}

}  // namespace danlu::train
