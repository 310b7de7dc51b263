// ops/embedding.h: rows of a table by token id.
#pragma once
#include <ATen/core/Tensor.h>

#include "ops/main_grad.h"

namespace danlu::ops {

/// Shapes  ids_N int64 [N]; weight_VH [V, H]; result [N, H]. Grad through the weight (dense; rows
///         of repeated ids are summed in f32 and rounded once), or to `main`.
///         ids_N: on the host, or, at the price of waiting, on a device.
/// Errors  ModelError naming the id and V if an id is outside [0, V).
at::Tensor embedding(const at::Tensor& ids_N, const at::Tensor& weight_VH,
                     const MainGradPtr& main = {});

/// The same of a table of which rows [first_row, first_row + v) are here: ids of other rows give
/// zeros. Shapes  weight_vH [v, H], v may be 0. Errors  as above, of the whole `vocab`.
at::Tensor embedding_part(const at::Tensor& ids_N, const at::Tensor& weight_vH, int64_t first_row,
                          int64_t vocab, const MainGradPtr& main = {});

}  // namespace danlu::ops
