#include "layers/prediction.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>

namespace danlu::layers {

at::Tensor Prediction::joined(const at::Tensor& hidden_NH, const at::Tensor& next_ids_N,
                              const Pass& pass) const {
  // A backward goes the other way: the gradients of the table and of the token's norm are there
  // before that of hidden_NH, which says that this place is done (parallel/store.h).
  const at::Tensor normed_NH = hidden_norm.forward(hidden_NH);
  const at::Tensor token_NH = token_norm.forward(embedding.forward(next_ids_N));
  at::Tensor both = region.enter(at::cat({token_NH, normed_NH}, 1));
  if (!region.is_alone()) {
    const int64_t own = join.weight.tensor.size(1);
    both = both.narrow(1, region.group().rank() * own, own).contiguous();
  }
  return join.leave(join.partial(both, pass, region), region);
}

at::Tensor Prediction::forward(const at::Tensor& hidden_NH, const at::Tensor& next_ids_N,
                               const std::shared_ptr<const Pass>& pass, const Again& again,
                               bool is_recomputed) const {
  const at::Tensor input_NH = joined(hidden_NH, next_ids_N, *pass);
  if (!is_recomputed) return block->forward(input_NH, pass, again, {});
  // A layer gives what it has beside hidden states once.
  const bool keeps = at::GradMode::is_enabled();
  const auto silent = std::make_shared<Pass>(*pass);
  silent->results = nullptr;
  const Body body = [this, keeps, pass, silent = std::shared_ptr<const Pass>(silent)](
                        const std::vector<at::Tensor>& inputs) {
    const bool is_again = keeps && at::GradMode::is_enabled();
    return block->forward(inputs[0], is_again ? silent : pass, {}, {});
  };
  return recomputed(body, {input_NH}, tensors_of(*block));
}

void Prediction::visit(Visitor& visitor) {
  hidden_norm.visit(visitor);
  embedding.visit(visitor);
  token_norm.visit(visitor);
  join.visit(visitor);
  block->visit(visitor);
  norm.visit(visitor);
  head.visit(visitor);
}

}  // namespace danlu::layers
