#include "train/stage_links.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include "base/error.h"

namespace danlu::train {

StageLinks::StageLinks(const models::CausalLM& stage)
    : stage_(stage),
      mesh_(stage.mesh()),
      // A schedule has no more under way than it keeps activations of.
      most_under_way_(static_cast<size_t>(
          mesh_.shape().pipeline *
          (stage.stage().num_chunks() > 1 ? 2 * (stage.stage().num_chunks() + 1) : 1))) {
  const auto thread_for = [](const parallel::Group& group) {
    return std::make_unique<parallel::Background>([&group] { group.abort(); });
  };
  const int64_t stages = mesh_.shape().pipeline;
  if (stages == 1) return;
  if (mesh_.shape().ring || mesh_.stage() + 1 < stages) {
    hidden_.thread = thread_for(mesh_.with_next(Way::kHidden));
    grad_in_.thread = thread_for(mesh_.with_next(Way::kGrad));
  }
  if (mesh_.shape().ring || mesh_.stage() > 0) {
    grad_.thread = thread_for(mesh_.with_previous(Way::kGrad));
    hidden_in_.thread = thread_for(mesh_.with_previous(Way::kHidden));
  }
}

void StageLinks::expect(Incoming& incoming, const parallel::Group& group,
                        std::vector<int64_t> shape) {
  incoming.shapes.push_back(std::move(shape));
  // The first of a step, too, travels while something else is computed.
  if (incoming.coming.empty()) ask(incoming, group);
}

void StageLinks::ask(Incoming& incoming, const parallel::Group& group) {
  if (incoming.shapes.empty()) return;
  const at::Tensor what =
      at::empty(incoming.shapes.front(), at::TensorOptions(stage_.dtype()).device(stage_.device()));
  incoming.shapes.pop_front();
  auto done = incoming.thread->run(
      [&group, what = at::Tensor(what)]() mutable {
        group.pass_on(what, 1 - group.rank(), group.rank());
        what.reset();
      },
      what.device(), {what});
  incoming.coming.emplace_back(what, std::move(done));
}

at::Tensor StageLinks::receive(Incoming& incoming, const parallel::Group& group) {
  if (incoming.coming.empty()) throw InternalError("[links] nothing more is expected");
  auto [what, done] = std::move(incoming.coming.front());
  incoming.coming.pop_front();
  done.get();
  ask(incoming, group);  // travels while this one is computed with
  return what;
}

void StageLinks::send(Outgoing& outgoing, const parallel::Group& group, const at::Tensor& what) {
  // What has left frees its memory, and what failed is told here. Passes forward alone would run
  // ahead without end.
  while (!outgoing.running.empty() &&
         (outgoing.running.size() >= most_under_way_ || outgoing.running.front().is_over())) {
    outgoing.running.front().get();
    outgoing.running.pop_front();
  }
  outgoing.running.push_back(outgoing.thread->run(
      [&group, what = at::Tensor(what)]() mutable {
        group.pass_on(what, group.rank(), 1 - group.rank());
        what.reset();
      },
      what.device(), {what}));
}

void StageLinks::expect_hidden(int64_t chunk, const models::PassSize& size) {
  expect(hidden_in_, mesh_.with_previous(Way::kHidden),
         stage_.shape_before(stage_.stage().chunk(chunk).first, size));
}
void StageLinks::expect_grad(int64_t chunk, const models::PassSize& size) {
  expect(grad_in_, mesh_.with_next(Way::kGrad),
         stage_.shape_before(stage_.stage().chunk(chunk).end, size));
}
at::Tensor StageLinks::receive_hidden() {
  return receive(hidden_in_, mesh_.with_previous(Way::kHidden));
}
at::Tensor StageLinks::receive_grad() { return receive(grad_in_, mesh_.with_next(Way::kGrad)); }
void StageLinks::send_hidden(const at::Tensor& hidden_nH) {
  send(hidden_, mesh_.with_next(Way::kHidden), hidden_nH);
}
void StageLinks::send_grad(const at::Tensor& grad_nH) {
  send(grad_, mesh_.with_previous(Way::kGrad), grad_nH);
}

void StageLinks::finish() {
  for (Outgoing* outgoing : {&hidden_, &grad_}) {
    for (; !outgoing->running.empty(); outgoing->running.pop_front())
      outgoing->running.front().get();
  }
}

}  // namespace danlu::train
