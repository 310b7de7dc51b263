// ops/head_groups.h: query heads that share a key head, below each other. Internal to tables of
// kernels.
#pragma once
#include <ATen/core/Tensor.h>

namespace danlu::ops {

/// Query heads of a group lie below each other, so that K/V are never repeated: [N, Q, D] as
/// [K, Q/K · N, D].
inline at::Tensor by_group(const at::Tensor& x_NQD, int64_t kv_heads) {
  const int64_t n = x_NQD.size(0), group = x_NQD.size(1) / kv_heads, head_dim = x_NQD.size(2);
  return x_NQD.reshape({n, kv_heads, group, head_dim})
      .permute({1, 2, 0, 3})
      .reshape({kv_heads, group * n, head_dim});
}
/// And back.
inline at::Tensor by_row(const at::Tensor& x, int64_t n) {
  const int64_t kv_heads = x.size(0), group = x.size(1) / n, head_dim = x.size(2);
  return x.view({kv_heads, group, n, head_dim})
      .permute({2, 0, 1, 3})
      .reshape({n, kv_heads * group, head_dim});
}

}  // namespace danlu::ops
