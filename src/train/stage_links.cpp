#include "train/stage_links.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <chrono>

namespace danlu::train {

StageLinks::StageLinks(const models::CausalLM& stage) : stage_(stage), mesh_(stage.mesh()) {
  const auto thread_for = [](const parallel::Group& group) {
    return std::make_unique<parallel::Background>([&group] { group.abort(); });
  };
  if (!is_last()) hidden_.thread = thread_for(mesh_.with_next(Way::kHidden));
  if (!is_first()) grad_.thread = thread_for(mesh_.with_previous(Way::kGrad));
}

at::Tensor StageLinks::receive(const parallel::Group& group, int64_t from, int64_t tokens) const {
  at::Tensor what = at::empty(stage_.hidden_shape(tokens),
                              at::TensorOptions(stage_.dtype()).device(stage_.device()));
  group.pass_on(what, from, 1 - from);
  return what;
}

void StageLinks::send(Outgoing& outgoing, const parallel::Group& group, int64_t from,
                      const at::Tensor& what) {
  // What has left frees its memory, and what failed is told here. A schedule has no more under way
  // than stages; passes forward alone would run ahead without end.
  const auto most = static_cast<size_t>(mesh_.shape().pipeline);
  const auto has_left = [&] {
    return outgoing.running.front().wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  };
  while (!outgoing.running.empty() && (outgoing.running.size() >= most || has_left())) {
    outgoing.running.front().get();
    outgoing.running.pop_front();
  }
  outgoing.running.push_back(
      outgoing.thread->run([&group, from, what = at::Tensor(what)]() mutable {
        group.pass_on(what, from, 1 - from);
        what.reset();
      }));
}

at::Tensor StageLinks::receive_hidden(int64_t tokens) const {
  return receive(mesh_.with_previous(Way::kHidden), 0, tokens);
}
at::Tensor StageLinks::receive_grad(int64_t tokens) const {
  return receive(mesh_.with_next(Way::kGrad), 1, tokens);
}
void StageLinks::send_hidden(const at::Tensor& hidden_nH) {
  send(hidden_, mesh_.with_next(Way::kHidden), 0, hidden_nH);
}
void StageLinks::send_grad(const at::Tensor& grad_nH) {
  send(grad_, mesh_.with_previous(Way::kGrad), 1, grad_nH);
}

void StageLinks::finish() {
  for (Outgoing* outgoing : {&hidden_, &grad_}) {
    for (; !outgoing->running.empty(); outgoing->running.pop_front())
      outgoing->running.front().get();
  }
}

}  // namespace danlu::train
