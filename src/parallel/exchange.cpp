#include "parallel/exchange.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include <numeric>

namespace danlu::parallel {
namespace {

using Counts = std::vector<int64_t>;

/// Parts of `rows` one below the other, flat.
Group::Tensors parts_for_ranks(const at::Tensor& rows_RH, const Counts& counts) {
  Group::Tensors parts;
  int64_t first = 0;
  for (const int64_t count : counts) {
    parts.push_back(count == 0 ? at::Tensor() : rows_RH.narrow(0, first, count).reshape({-1}));
    first += count;
  }
  return parts;
}

at::Tensor exchanged(const at::Tensor& given_RH, const Counts& sends, const Counts& receives,
                     const Group& group) {
  const at::Tensor x_RH = given_RH.detach().contiguous();
  const int64_t rows = std::accumulate(receives.begin(), receives.end(), int64_t{0});
  const at::Tensor result_RH = at::empty({rows, x_RH.size(1)}, x_RH.options());
  group.all_to_all(parts_for_ranks(x_RH, sends), parts_for_ranks(result_RH, receives));
  return result_RH;
}

class Exchange : public torch::autograd::Function<Exchange> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& x_RH,
                            const Counts& sends, const Counts& receives, int64_t group) {
    ctx->saved_data["sends"] = sends;
    ctx->saved_data["receives"] = receives;
    ctx->saved_data["group"] = group;
    return exchanged(x_RH, sends, receives, *reinterpret_cast<const Group*>(group));
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 const torch::autograd::variable_list& grads) {
    const auto& group = *reinterpret_cast<const Group*>(ctx->saved_data["group"].toInt());
    return {exchanged(grads[0], ctx->saved_data["receives"].toIntVector(),
                      ctx->saved_data["sends"].toIntVector(), group),
            {},
            {},
            {}};
  }
};

}  // namespace

at::Tensor exchange_rows(const at::Tensor& x_RH, const Counts& sends, const Counts& receives,
                         const Group& group) {
  // Groups outlive the graph (they belong to the run), so their address may travel through it.
  return Exchange::apply(x_RH, sends, receives, reinterpret_cast<int64_t>(&group));
}

}  // namespace danlu::parallel
