#include "layers/positions.h"

#include <ATen/core/Tensor.h>

#include "base/error.h"
#include "ops/embedding.h"
#include "ops/pointwise.h"

namespace danlu::layers {

at::Tensor Positions::added_to(const at::Tensor& tokens_nH, const at::Tensor& positions_N) const {
  if (!weight.defined()) return tokens_nH;
  const int64_t rows = tokens_nH.size(0), known = weight.spec.shape[0];
  const int64_t first = region.is_sequence() ? region.group().rank() * rows : 0;
  const at::Tensor own_n = positions_N.narrow(0, first, rows).cpu();
  if (rows > 0 && own_n.max().item<int64_t>() >= known) {
    throw ModelError(tr("[model] a token at position {}, but the model has embeddings of {} "
                        "positions, counted from 0",
                        own_n.max().item<int64_t>(), known),
                     tr("give it shorter texts"));
  }
  return ops::add(tokens_nH, ops::embedding(own_n, weight.tensor, weight.main_grad));
}

}  // namespace danlu::layers
