#include "ops/embedding.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_unique.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include "device/dtype.h"
#include "device/sent.h"
#include "ops/autograd.h"
#include "ops/backend.h"
#include "ops/check.h"
#include "ops/pointwise.h"

namespace danlu::ops {

namespace {

/// Which rows of the table become which of the result.
struct Places {
  at::Tensor row_n;    ///< on the host
  at::Tensor place_n;  ///< there too; undefined: row i of the result is of row_n[i]
  int64_t result_rows;
};

class Lookup : public torch::autograd::Function<Lookup> {
 public:
  using List = torch::autograd::variable_list;
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& weight_VH,
                            const Places& places, const MainGradPtr& main) {
    ctx->saved_data["main"] = held(main);
    ctx->saved_data["places"] = held(places);
    ctx->saved_data["rows"] = weight_VH.size(0);
    return looked_up(weight_VH, places);
  }

  static at::Tensor looked_up(const at::Tensor& weight_VH, const Places& places) {
    const auto& table = completed_backend(weight_VH.device().type());
    const at::Tensor found_nH =
        table.take_rows(weight_VH, device::sent(places.row_n, weight_VH.device()));
    if (!places.place_n.defined()) return found_nH;
    const at::Tensor result_NH =
        at::zeros({places.result_rows, weight_VH.size(1)}, weight_VH.options());
    table.add_rows(result_NH, device::sent(places.place_n, weight_VH.device()), found_nH);
    return result_NH;
  }

  // ATen's own backward adds repeated rows in the weight's dtype: in bf16 256 + 1 stays 256.
  static List backward(torch::autograd::AutogradContext* ctx, const List& grads) {
    const auto& places = held_in<Places>(ctx->saved_data["places"]);
    const auto& main = held_in<MainGradPtr>(ctx->saved_data["main"]);
    const at::Device device = grads[0].device();
    const at::Tensor grad_nH = places.place_n.defined()
                                   ? completed_backend(device.type())
                                         .take_rows(grads[0], device::sent(places.place_n, device))
                                   : grads[0];
    if (takes_grad(main)) {
      add_rows(main->sum, device::sent(places.row_n, device), grad_nH);
      return {at::Tensor(), at::Tensor(), at::Tensor()};
    }
    const auto [used_U, slot_n] = at::_unique(places.row_n, true, true);
    const at::ScalarType type = grad_nH.scalar_type();
    const at::Tensor sum_UH = at::zeros({used_U.size(0), grad_nH.size(1)},
                                        grad_nH.options().dtype(device::wide_type(type)));
    add_rows(sum_UH, device::sent(slot_n, device), grad_nH);
    const at::Tensor grad_VH =
        at::zeros({ctx->saved_data["rows"].toInt(), grad_nH.size(1)}, grad_nH.options());
    add_rows(grad_VH, device::sent(used_U, device), sum_UH.to(type));
    return {grad_VH, at::Tensor(), at::Tensor()};
  }
};

at::Tensor look_up(const at::Tensor& weight_VH, const Places& places, const MainGradPtr& main) {
  return needs_no_graph({&weight_VH}) ? Lookup::looked_up(weight_VH, places)
                                      : Lookup::apply(weight_VH, places, main);
}

/// The ids on the host. Errors: one outside the vocabulary.
at::Tensor checked(const at::Tensor& ids_N, const at::Tensor& weight_VH, int64_t vocab) {
  require(ids_N.dim() == 1 && weight_VH.dim() == 2, "embedding", "ids ", ids_N.sizes(),
          " must be [N], the table ", weight_VH.sizes(), " [V, H]");
  const at::Tensor ids = ids_N.cpu();
  if (ids.numel() == 0) return ids;
  const int64_t low = ids.min().item<int64_t>(), high = ids.max().item<int64_t>();
  require(low >= 0 && high < vocab, "embedding", "token id ", low < 0 ? low : high,
          " is outside the vocabulary of ", vocab, " rows");
  return ids;
}

}  // namespace

at::Tensor embedding(const at::Tensor& ids_N, const at::Tensor& weight_VH,
                     const MainGradPtr& main) {
  const at::Tensor ids = checked(ids_N, weight_VH, weight_VH.dim() == 2 ? weight_VH.size(0) : 0);
  return look_up(weight_VH, {ids, {}, ids.size(0)}, main);
}

at::Tensor embedding_part(const at::Tensor& ids_N, const at::Tensor& weight_vH, int64_t first_row,
                          int64_t vocab, const MainGradPtr& main) {
  const at::Tensor local_N = checked(ids_N, weight_vH, vocab) - first_row;
  const at::Tensor here_n =
      at::nonzero((local_N >= 0).logical_and(local_N < weight_vH.size(0))).squeeze(1);
  return look_up(weight_vH, {local_N.index_select(0, here_n), here_n, ids_N.size(0)}, main);
}

}  // namespace danlu::ops
