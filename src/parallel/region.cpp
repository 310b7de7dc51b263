#include "parallel/region.h"

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/custom_function.h>

namespace danlu::parallel {
namespace {

enum class What : int64_t { kNothing, kSum, kGather, kScatter };

at::Tensor done(const at::Tensor& x, What what, const Group& group) {
  if (what == What::kGather) return group.all_gather(x, 0);
  if (what == What::kScatter) return group.reduce_scatter_sum(x, 0);
  if (what == What::kNothing) return x;
  at::Tensor sum = x.contiguous().clone();
  group.all_reduce_sum(sum);
  return sum;
}

/// One collective forward, its adjoint backward.
class Border : public torch::autograd::Function<Border> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x,
                            int64_t group, int64_t forward, int64_t backward) {
    // Groups outlive the graph (they belong to the run), so their address may travel through it.
    ctx->saved_data["group"] = group;
    ctx->saved_data["backward"] = backward;
    const auto what = static_cast<What>(forward);
    return what == What::kNothing ? x.view_as(x)
                                  : done(x, what, *reinterpret_cast<const Group*>(group));
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list& grads) {
    const auto& group = *reinterpret_cast<const Group*>(ctx->saved_data["group"].toInt());
    const auto what = static_cast<What>(ctx->saved_data["backward"].toInt());
    return {done(grads[0], what, group), {}, {}, {}};
  }
};

at::Tensor pass(const at::Tensor& x, const Group& group, What forward, What backward) {
  return Border::apply(x, reinterpret_cast<int64_t>(&group), static_cast<int64_t>(forward),
                       static_cast<int64_t>(backward));
}

}  // namespace

at::Tensor Region::enter(const at::Tensor& x) const {
  if (is_alone()) return x;
  return sequence_ ? pass(x, *group_, What::kGather, What::kScatter)
                   : pass(x, *group_, What::kNothing, What::kSum);
}

at::Tensor Region::leave(const at::Tensor& x) const {
  if (is_alone()) return x;
  return sequence_ ? pass(x, *group_, What::kScatter, What::kGather)
                   : pass(x, *group_, What::kSum, What::kNothing);
}

}  // namespace danlu::parallel
