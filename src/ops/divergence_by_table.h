// ops/divergence_by_table.h: head_divergence() by entries of the table alone, for devices without
// ATen's operators. A few numbers of each row come to the host. Internal to ops.
#pragma once
#include <ATen/core/Tensor.h>

#include "ops/head_divergence.h"

namespace danlu::ops {

/// head_divergence() of rows hidden_MH and low_MR; ids_M are on the host; `columns` and
/// options.chunk_tokens are set. Results are on the host. REQUIRES: how.topk is 0.
HeadDivergence divergence_by_table(const at::Tensor& hidden_MH, const at::Tensor& weight_VH,
                                   const at::Tensor& ids_M, const OtherLogits& other,
                                   const HeadColumns& columns, const HeadOptions& options,
                                   const HeadAddition& low, const DivergenceOptions& how);

}  // namespace danlu::ops
