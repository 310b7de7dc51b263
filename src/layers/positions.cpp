#include "layers/positions.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>

#include "base/error.h"
#include "base/token_type.h"
#include "ops/embedding.h"
#include "ops/pointwise.h"

namespace danlu::layers {

at::Tensor Positions::added_to(const at::Tensor& tokens_nH, const at::Tensor& positions_N) const {
  if (!weight.defined()) return tokens_nH;
  const int64_t rows = tokens_nH.size(0), known = weight.spec.shape[0];
  const int64_t begin = region.is_sequence() ? region.group().rank() * rows : 0;
  at::Tensor own_n = positions_N.narrow(0, begin, rows).cpu();
  if (first > 0) own_n = own_n + first;
  if (rows > 0 && own_n.max().item<int64_t>() >= known) {
    throw ModelError(tr("[model] a token at position {}, but the model has embeddings of {} "
                        "positions, counted from 0",
                        own_n.max().item<int64_t>() - first, known - first),
                     tr("give it shorter texts"));
  }
  return ops::add(tokens_nH, ops::embedding(own_n, weight.tensor, weight.main_grad));
}

namespace {

/// int64 [N] on the host: of each id what `of` says.
template <typename Of>
at::Tensor of_each(const at::Tensor& ids_N, Of of) {
  const at::Tensor on_host_N = ids_N.cpu().contiguous();
  at::Tensor result_N = at::empty_like(on_host_N);
  const int64_t* ids = on_host_N.data_ptr<int64_t>();
  std::transform(ids, ids + on_host_N.numel(), result_N.data_ptr<int64_t>(), of);
  return result_N;
}

}  // namespace

at::Tensor TokenTypes::added_to(const at::Tensor& tokens_NH, const at::Tensor& ids_N) const {
  const bool has_second = weight.spec.shape[0] > 1;
  const at::Tensor types_N = of_each(ids_N, [has_second](int64_t id) -> int64_t {
    return has_second && id >= kSecondText ? 1 : 0;
  });
  return ops::add(tokens_NH, ops::embedding(types_N, weight.tensor, weight.main_grad));
}

at::Tensor tokens_without_type(const at::Tensor& ids_N) { return of_each(ids_N, without_type); }

}  // namespace danlu::layers
