#include "layers/pass_results.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/custom_function.h>

#include "ops/pointwise.h"

namespace danlu::layers {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// hidden, and the gradient of a sum that nothing reads.
class LossTerm : public torch::autograd::Function<LossTerm> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& hidden, const at::Tensor&,
                            const at::Tensor& factor) {
    ctx->saved_data["factor"] = factor;
    return hidden.view_as(hidden);
  }
  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    return {grads[0], ctx->saved_data["factor"].toTensor(), at::Tensor()};
  }
};

}  // namespace

void PassResults::add(const std::string& name, const at::Tensor& sum) {
  const at::NoGradGuard no_grad;
  const at::Tensor value = ops::as_numbers(sum.detach()).to(at::kDouble);
  const auto [found, is_new] = sums_.try_emplace(name, value);
  if (!is_new) found->second = found->second + value;
}

void PassResults::add_mean(const std::string& name, const at::Tensor& sum, double weight) {
  add(name, sum);
  weights_[name] += weight;
}

at::Tensor with_loss_term(const at::Tensor& hidden, const std::string& name, const at::Tensor& sum,
                          const Pass& pass) {
  if (pass.results) pass.results->add(name, sum);
  return with_gradient_of(hidden, sum, pass);
}

at::Tensor with_gradient_of(const at::Tensor& hidden, const at::Tensor& sum, const Pass& pass) {
  return with_gradient_of(hidden, sum, sum.new_full({}, pass.loss_scale));
}

at::Tensor with_gradient_of(const at::Tensor& hidden, const at::Tensor& sum,
                            const at::Tensor& factor) {
  if (!at::GradMode::is_enabled() || !sum.requires_grad()) return hidden;
  return LossTerm::apply(hidden, sum, factor);
}

}  // namespace danlu::layers
