// npu/arithmetic.h: what the table's entries are put together from, on tensors of one device.
#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

namespace danlu::npu {

/// Fresh memory beside `like`.
at::Tensor fresh(const at::Tensor& like, at::IntArrayRef sizes, at::ScalarType type);
inline at::Tensor fresh(const at::Tensor& like) {
  return fresh(like, like.sizes(), like.scalar_type());
}

/// x itself where it is of that type, else a contiguous copy.
at::Tensor cast(const at::Tensor& x, at::ScalarType type);
inline at::Tensor wide(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble ? x : cast(x, at::kFloat);
}
/// a b, broadcast, in a's type.
at::Tensor times(const at::Tensor& a, const at::Tensor& b);
at::Tensor divided(const at::Tensor& a, const at::Tensor& b);
at::Tensor times(const at::Tensor& a, double factor);
/// sum += factor x, broadcast, of one type.
void add(const at::Tensor& sum, const at::Tensor& x, double factor = 1);
void multiply(const at::Tensor& x, double factor);
at::Tensor exponential(const at::Tensor& x);
at::Tensor logarithm(const at::Tensor& x);
/// x + term.
at::Tensor plus(const at::Tensor& x, double term);
/// The largest along `dim`, which stays as 1.
at::Tensor largest_along(const at::Tensor& x, int64_t dim);
/// Products of f32 matrices, one of each: a [B, M, K], b [B, K, N], of any strides.
at::Tensor batched_product(const at::Tensor& a_BMK, const at::Tensor& b_BKN);
/// x_CV with `more` added at one place of each row.
at::Tensor with_added(const at::Tensor& x_CV, const at::Tensor& index_C1,
                      const at::Tensor& more_C1);
/// Over `dims`, which stay as 1 where `keep`: f32 of floats.
at::Tensor sum_over(const at::Tensor& x, const std::vector<int64_t>& dims, bool keep);

}  // namespace danlu::npu
