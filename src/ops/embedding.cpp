#include "ops/embedding.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_unique.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>

#include "device/dtype.h"
#include "ops/check.h"

namespace danlu::ops {

namespace embedding_detail {

struct HeldGrad : torch::CustomClassHolder {
  MainGradPtr grad;
};

class Lookup : public torch::autograd::Function<Lookup> {
 public:
  using List = torch::autograd::variable_list;
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& ids_N,
                            const at::Tensor& weight_VH, const c10::intrusive_ptr<HeldGrad>& main) {
    ctx->save_for_backward({ids_N});
    ctx->saved_data["main"] = at::IValue::make_capsule(main);
    ctx->saved_data["rows"] = weight_VH.size(0);
    return weight_VH.index_select(0, ids_N);
  }

  // index_select's own backward adds repeated rows in the weight's dtype: in bf16 256 + 1 stays
  // 256.
  static List backward(torch::autograd::AutogradContext* ctx, const List& grads) {
    const at::Tensor ids_N = ctx->get_saved_variables()[0], grad_NH = grads[0];
    const auto holder = ctx->saved_data["main"].toCapsule();
    const MainGradPtr& main = static_cast<const HeldGrad&>(*holder).grad;
    if (takes_grad(main)) {
      at::Tensor(main->sum).index_add_(0, ids_N, grad_NH.to(main->sum.scalar_type()));
      return {at::Tensor(), at::Tensor(), at::Tensor()};
    }
    const auto [used_U, slot_N] = at::_unique(ids_N, true, true);
    const at::ScalarType wide = device::wide_type(grad_NH.scalar_type());
    at::Tensor sum_UH = at::zeros({used_U.size(0), grad_NH.size(1)}, grad_NH.options().dtype(wide));
    sum_UH.index_add_(0, slot_N, grad_NH.to(wide));
    at::Tensor grad_VH =
        at::zeros({ctx->saved_data["rows"].toInt(), grad_NH.size(1)}, grad_NH.options());
    grad_VH.index_copy_(0, used_U, sum_UH.to(grad_NH.scalar_type()));
    return {at::Tensor(), grad_VH, at::Tensor()};
  }
};

at::Tensor look_up(const at::Tensor& ids_N, const at::Tensor& weight_VH, const MainGradPtr& main) {
  auto held = c10::make_intrusive<HeldGrad>();
  held->grad = main;
  return Lookup::apply(ids_N, weight_VH, held);
}

void check(const at::Tensor& ids_N, const at::Tensor& weight_VH, int64_t vocab) {
  require(ids_N.dim() == 1 && weight_VH.dim() == 2, "embedding", "ids ", ids_N.sizes(),
          " must be [N], the table ", weight_VH.sizes(), " [V, H]");
  if (!ids_N.device().is_cpu() || ids_N.numel() == 0) return;
  const int64_t low = ids_N.min().item<int64_t>(), high = ids_N.max().item<int64_t>();
  require(low >= 0 && high < vocab, "embedding", "token id ", low < 0 ? low : high,
          " is outside the vocabulary of ", vocab, " rows");
}

}  // namespace embedding_detail

at::Tensor embedding(const at::Tensor& ids_N, const at::Tensor& weight_VH,
                     const MainGradPtr& main) {
  embedding_detail::check(ids_N, weight_VH, weight_VH.dim() == 2 ? weight_VH.size(0) : 0);
  return embedding_detail::look_up(ids_N, weight_VH, main);
}

at::Tensor embedding_part(const at::Tensor& ids_N, const at::Tensor& weight_vH, int64_t first_row,
                          int64_t vocab, const MainGradPtr& main) {
  embedding_detail::check(ids_N, weight_vH, vocab);
  const at::Tensor local_N = ids_N - first_row;
  const at::Tensor here_n =
      at::nonzero((local_N >= 0).logical_and(local_N < weight_vH.size(0))).squeeze(1);
  const at::Tensor found_nH =
      embedding_detail::look_up(local_N.index_select(0, here_n), weight_vH, main);
  return at::zeros({ids_N.size(0), weight_vH.size(1)}, weight_vH.options())
      .index_copy(0, here_n, found_nH);
}

}  // namespace danlu::ops
