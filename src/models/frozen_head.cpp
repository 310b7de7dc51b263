#include "models/frozen_head.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "base/error.h"
#include "device/dtype.h"
#include "device/sent.h"
#include "models/causal_lm_impl.h"
#include "ops/pointwise.h"

namespace danlu::models {

struct FrozenHead::State {
  layers::Head head;
  int64_t vocab = 0;
};

FrozenHead::FrozenHead(const CausalLM& model) {
  CausalLM::Impl& impl = model.impl();
  const at::NoGradGuard no_grad;
  const int64_t place = impl.stage().chain.head();
  if (!impl.stage().has(place)) return;
  impl.memory.with_place(place, [&] {
    state_ = std::make_unique<State>(
        State{impl.network.head, impl.network.head.linear.weight.spec.shape[0]});
    layers::Linear& linear = state_->head.linear;
    if (linear.adapter) throw InternalError("[model] a frozen head with an adapter");
    if (!impl.memory.sharing_store()) return;
    linear.weight.tensor = linear.weight.tensor.detach().clone();
    if (linear.bias.defined()) linear.bias.tensor = linear.bias.tensor.detach().clone();
  });
}

FrozenHead::~FrozenHead() = default;

at::Tensor FrozenHead::rows(const at::Tensor& hidden_nH, const at::Tensor& rows_M) const {
  const at::Tensor all_NH = state_->head.region.enter(hidden_nH);
  return ops::take_rows(all_NH, device::sent(rows_M, all_NH.device()));
}

at::Tensor FrozenHead::logits(const at::Tensor& rows_MH, const ops::HeadColumns& columns) const {
  const at::NoGradGuard no_grad;
  const at::ScalarType wide = device::wide_type(rows_MH.scalar_type());
  const layers::Head& head = state_->head;
  // Vocabularies of one size are cut alike.
  if (columns.whole == state_->vocab) return head.own_logits(rows_MH).to(wide);
  const int64_t first = std::min(columns.first, state_->vocab);
  return head.logits(rows_MH)
      .narrow(1, first, std::min(columns.count, state_->vocab - first))
      .to(wide);
}

}  // namespace danlu::models
