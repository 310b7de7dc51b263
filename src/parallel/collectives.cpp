#include "parallel/collectives.h"

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/custom_function.h>

namespace danlu::parallel {
namespace collectives_detail {

// Groups outlive the graph (they belong to the run), so their address may travel through it.
const Group& group_at(int64_t address) { return *reinterpret_cast<const Group*>(address); }
int64_t address_of(const Group& group) { return reinterpret_cast<int64_t>(&group); }

at::Tensor summed(const at::Tensor& x, const Group& group) {
  at::Tensor result = x.contiguous().clone();
  group.all_reduce_sum(result);
  return result;
}

class CopyTo : public torch::autograd::Function<CopyTo> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x,
                            int64_t group) {
    ctx->saved_data["group"] = group;
    return x.view_as(x);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list& grads) {
    return {summed(grads[0], group_at(ctx->saved_data["group"].toInt())), at::Tensor()};
  }
};

class SumOver : public torch::autograd::Function<SumOver> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x, int64_t group) {
    return summed(x, group_at(group));
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 const torch::autograd::variable_list& grads) {
    return {grads[0], at::Tensor()};
  }
};

}  // namespace collectives_detail

at::Tensor copy_to(const at::Tensor& x, const Group& group) {
  if (group.size() == 1) return x;
  return collectives_detail::CopyTo::apply(x, collectives_detail::address_of(group));
}

at::Tensor sum_over(const at::Tensor& x, const Group& group) {
  if (group.size() == 1) return x;
  return collectives_detail::SumOver::apply(x, collectives_detail::address_of(group));
}

}  // namespace danlu::parallel
