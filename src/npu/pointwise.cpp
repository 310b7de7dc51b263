// Sums, factors and rows.
#include <ATen/core/Tensor.h>

#include "npu/arithmetic.h"
#include "npu/operators.h"
#include "npu/table.h"

namespace danlu::npu {

void larger_into(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b) {
  if (out.numel() > 0) aclnn::maximum(View(a), View(b), View(out));
}

void add_into(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b) {
  if (out.numel() == 0) return;
  const auto one = [&](const auto& sum) { aclnn::add(View(a), View(b), sum, View(out)); };
  if (out.is_floating_point()) {
    one(Number(1.0));
  } else {
    one(Number(int64_t{1}));
  }
}

void add_to(const at::Tensor& sum, const at::Tensor& x) { add(sum, cast(x, sum.scalar_type())); }

at::Tensor add_bias(const at::Tensor& x_NO, const at::Tensor& bias_O) {
  const at::Tensor sum = fresh(x_NO, x_NO.sizes(), x_NO.scalar_type());
  if (sum.numel() > 0) aclnn::add(View(x_NO), View(bias_O), Number(1.0), View(sum));
  return sum;
}

at::Tensor scaled(const at::Tensor& x, double factor) { return times(x, factor); }

at::Tensor take_rows(const at::Tensor& x_NH, const at::Tensor& index_n) {
  std::vector<int64_t> sizes = x_NH.sizes().vec();
  sizes.front() = index_n.size(0);
  const at::Tensor rows_nH = fresh(x_NH, sizes, x_NH.scalar_type());
  if (rows_nH.numel() > 0)
    aclnn::index_select(View(x_NH), int64_t{0}, View(index_n), View(rows_nH));
  return rows_nH;
}

void add_rows(const at::Tensor& sum_NH, const at::Tensor& index_n, const at::Tensor& rows_nH) {
  if (rows_nH.numel() == 0) return;
  aclnn::index_add(View(sum_NH), int64_t{0}, View(index_n),
                   View(cast(rows_nH, sum_NH.scalar_type())), Number(1.0), View(sum_NH));
}

at::Tensor with_rows(const at::Tensor& x_NH, const at::Tensor& index_n, const at::Tensor& rows_nH) {
  const at::Tensor result = fresh(x_NH, x_NH.sizes(), x_NH.scalar_type());
  if (result.numel() == 0) return result;
  result.copy_(x_NH);
  if (index_n.numel() == 0) return result;
  std::vector<int64_t> sizes = x_NH.sizes().vec();
  sizes.front() = index_n.size(0);
  const at::Tensor rows =
      rows_nH.defined() ? rows_nH : fresh(x_NH, sizes, x_NH.scalar_type()).zero_();
  aclnn::inplace_index_copy(View(result), int64_t{0}, View(index_n), View(rows));
  return result;
}

at::Tensor scale_rows(const at::Tensor& x_NH, const at::Tensor& factor_N) {
  return cast(times(wide(x_NH), factor_N.reshape({-1, 1})), x_NH.scalar_type());
}

at::Tensor row_dots(const at::Tensor& a_NH, const at::Tensor& b_NH) {
  return sum_over(times(wide(a_NH), wide(b_NH)), {1}, false);
}

at::Tensor column_sums(const at::Tensor& x_NO) { return sum_over(x_NO, {0}, false); }

at::Tensor attention_delta(const at::Tensor& out_grad_NQD, const at::Tensor& out_NQD) {
  return sum_over(times(wide(out_grad_NQD), wide(out_NQD)), {2}, false).t().contiguous();
}

}  // namespace danlu::npu
