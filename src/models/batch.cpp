#include "models/batch.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/remainder.h>

#include "base/ignore_label.h"
#include "ops/check.h"

namespace danlu::models {

PaddedBatch pack_padded(const at::Tensor& ids_BT, const at::Tensor& mask_BT,
                        const at::Tensor& labels_BT) {
  for (const at::Tensor& other : {mask_BT, labels_BT}) {
    ops::require(ids_BT.dim() == 2 && (!other.defined() || other.sizes() == ids_BT.sizes()),
                 "batch", "input_ids ", ids_BT.sizes(),
                 " must be [B, T], and attention_mask and labels alike");
  }
  const int64_t rows = ids_BT.size(0), columns = ids_BT.size(1);
  const at::Tensor mask = mask_BT.defined() ? mask_BT != 0 : at::ones_like(ids_BT, at::kBool);
  PaddedBatch batch;
  batch.index_N = at::nonzero(mask.reshape({-1})).squeeze(1);
  batch.input.ids_N = ids_BT.reshape({-1}).index_select(0, batch.index_N).to(at::kLong);
  batch.input.positions_N = at::remainder(batch.index_N, columns);
  std::vector<int64_t> starts{0};
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t count = mask[row].sum().item<int64_t>();
    ops::require(count > 0, "batch", "row ", row, " has no token that attention_mask lets through");
    starts.push_back(starts.back() + count);
  }
  batch.input.segments = {starts, starts};
  if (labels_BT.defined()) {
    const at::Tensor next = at::full_like(labels_BT, kIgnoreLabel, at::kLong);
    next.narrow(1, 0, columns - 1).copy_(labels_BT.narrow(1, 1, columns - 1));
    batch.targets_N = next.reshape({-1}).index_select(0, batch.index_N);
  }
  return batch;
}

}  // namespace danlu::models
