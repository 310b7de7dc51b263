#include "npu/arithmetic.h"

#include <ATen/ExpandUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>

#include "npu/operators.h"

namespace danlu::npu {

at::Tensor fresh(const at::Tensor& like, at::IntArrayRef sizes, at::ScalarType type) {
  return at::empty(sizes, like.options().dtype(type).requires_grad(false));
}

at::Tensor cast(const at::Tensor& x, at::ScalarType type) {
  if (x.scalar_type() == type) return x;
  const at::Tensor result = fresh(x, x.sizes(), type);
  if (x.numel() > 0) aclnn::inplace_copy(View(result), View(x));
  return result;
}

at::Tensor times(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor result = fresh(a, at::infer_size(a.sizes(), b.sizes()), a.scalar_type());
  if (result.numel() > 0) aclnn::mul(View(a), View(b), View(result));
  return result;
}

at::Tensor divided(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor result = fresh(a, at::infer_size(a.sizes(), b.sizes()), a.scalar_type());
  if (result.numel() > 0) aclnn::div(View(a), View(b), View(result));
  return result;
}

at::Tensor with_added(const at::Tensor& x_CV, const at::Tensor& index_C1,
                      const at::Tensor& more_C1) {
  const at::Tensor result = fresh(x_CV);
  aclnn::scatter_add(View(x_CV), int64_t{1}, View(index_C1), View(more_C1), View(result));
  return result;
}

at::Tensor times(const at::Tensor& a, double factor) {
  const at::Tensor result = fresh(a);
  if (result.numel() > 0) aclnn::muls(View(a), Number(factor), View(result));
  return result;
}

void add(const at::Tensor& sum, const at::Tensor& x, double factor) {
  if (sum.numel() == 0) return;
  if (sum.is_floating_point()) return aclnn::inplace_add(View(sum), View(x), Number(factor));
  aclnn::inplace_add(View(sum), View(x), Number(static_cast<int64_t>(factor)));
}

void multiply(const at::Tensor& x, double factor) {
  if (x.numel() > 0) aclnn::inplace_muls(View(x), Number(factor));
}

at::Tensor exponential(const at::Tensor& x) {
  const at::Tensor result = fresh(x);
  if (x.numel() > 0) aclnn::exp(View(x), View(result));
  return result;
}

at::Tensor logarithm(const at::Tensor& x) {
  const at::Tensor result = fresh(x);
  if (x.numel() > 0) aclnn::log(View(x), View(result));
  return result;
}

at::Tensor plus(const at::Tensor& x, double term) {
  const at::Tensor result = fresh(x);
  if (x.numel() > 0) aclnn::adds(View(x), Number(term), Number(1.0), View(result));
  return result;
}

at::Tensor largest_along(const at::Tensor& x, int64_t dim) {
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes[static_cast<size_t>(dim)] = 1;
  const at::Tensor result = fresh(x, sizes, x.scalar_type());
  if (x.numel() > 0) aclnn::amax(View(x), Numbers{dim}, true, View(result));
  return result;
}

at::Tensor batched_product(const at::Tensor& a_BMK, const at::Tensor& b_BKN) {
  constexpr int8_t kExact = 0;
  const at::Tensor result = fresh(a_BMK, {a_BMK.size(0), a_BMK.size(1), b_BKN.size(2)}, at::kFloat);
  if (result.numel() > 0) aclnn::matmul(View(a_BMK), View(b_BKN), View(result), kExact);
  return result;
}

at::Tensor sum_over(const at::Tensor& x, const std::vector<int64_t>& dims, bool keep) {
  std::vector<int64_t> sizes;
  for (int64_t d = 0; d < x.dim(); ++d) {
    const bool is_summed = std::any_of(dims.begin(), dims.end(),
                                       [&](int64_t s) { return s == d || s == d - x.dim(); });
    if (!is_summed) {
      sizes.push_back(x.size(d));
    } else if (keep) {
      sizes.push_back(1);
    }
  }
  const bool is_float = x.is_floating_point();
  const at::Tensor result = fresh(x, sizes, is_float ? at::kFloat : at::kLong);
  if (x.numel() == 0) {
    result.zero_();
  } else {
    aclnn::reduce_sum(View(x), Numbers(dims), keep, acl_type(result.scalar_type()), View(result));
  }
  return result;
}

}  // namespace danlu::npu
