// Rows of length one, and DoRA's: by their squares.
#include <ATen/core/Tensor.h>

#include "npu/arithmetic.h"
#include "npu/operators.h"
#include "npu/table.h"

namespace danlu::npu {
namespace {

constexpr double kShortestRow = 1e-12;  // as ops/norm_head.h

at::Tensor square_root(const at::Tensor& x) {
  const at::Tensor result = fresh(x);
  if (x.numel() > 0) aclnn::sqrt(View(x), View(result));
  return result;
}

at::Tensor reaches(const at::Tensor& x, double least) {
  const at::Tensor flag = fresh(x, x.sizes(), at::kBool);
  if (x.numel() > 0) aclnn::ge_scalar(View(x), Number(least), View(flag));
  return flag;
}

at::Tensor where_or(const at::Tensor& flag, const at::Tensor& x, double otherwise) {
  const at::Tensor other = fresh(x), result = fresh(x);
  other.fill_(otherwise);
  if (x.numel() > 0) aclnn::where(View(flag), View(x), View(other), View(result));
  return result;
}

/// 1 of rows that are 0.
at::Tensor lengths_of(const at::Tensor& squares_O) {
  const at::Tensor length_O = square_root(squares_O);
  constexpr double kSmallest = 1e-37;
  return where_or(reaches(length_O, kSmallest), length_O, 1);
}

}  // namespace

ops::NormHeadResult norm_head(const at::Tensor& weight_VH) {
  const at::Tensor wide_VH = wide(weight_VH);
  const at::Tensor own_V1 = square_root(sum_over(times(wide_VH, wide_VH), {1}, true)),
                   length_V1 = where_or(reaches(own_V1, kShortestRow), own_V1, kShortestRow);
  return {cast(divided(wide_VH, length_V1), weight_VH.scalar_type()), length_V1};
}

at::Tensor norm_head_backward(const at::Tensor& weight_VH, const at::Tensor& length_V1,
                              const at::Tensor& d_y_VH) {
  const at::Tensor wide_VH = wide(weight_VH), grad_VH = wide(d_y_VH);
  const at::Tensor along_V1 =
      divided(sum_over(times(grad_VH, wide_VH), {1}, true), times(length_V1, length_V1));
  // A row that is shorter than any keeps its gradient along itself.
  const at::Tensor kept_V1 =
      times(along_V1, cast(reaches(length_V1, 2 * kShortestRow), at::kFloat));
  const at::Tensor rest_VH = times(wide_VH, times(kept_V1, -1.0));
  add(rest_VH, grad_VH);
  return divided(rest_VH, length_V1);
}

at::Tensor adapted_row_squares(const at::Tensor& weight_OI, const at::Tensor& b_OR,
                               const at::Tensor& a_RI, double scale) {
  const at::Tensor sum_OI = product(wide(b_OR), wide(a_RI).t(), {}, at::kFloat);
  multiply(sum_OI, scale);
  add(sum_OI, wide(weight_OI));
  return sum_over(times(sum_OI, sum_OI), {1}, false);
}

at::Tensor stretch_factor(const at::Tensor& magnitude_O, const at::Tensor& squares_O, bool change,
                          at::ScalarType type) {
  const at::Tensor factor_O = cast(divided(wide(magnitude_O), lengths_of(squares_O)), type);
  if (!change) return factor_O;
  const at::Tensor less_O = fresh(factor_O);
  if (less_O.numel() > 0) aclnn::adds(View(factor_O), Number(-1.0), Number(1.0), View(less_O));
  return less_O;
}

at::Tensor scale_columns(const at::Tensor& x_NO, const at::Tensor& factor_O) {
  return times(x_NO, factor_O);
}

at::Tensor stretch_grad(const at::Tensor& d_stretched_NO, const at::Tensor& y_NO,
                        const at::Tensor& squares_O) {
  return divided(sum_over(times(wide(d_stretched_NO), wide(y_NO)), {0}, false),
                 lengths_of(squares_O));
}

at::Tensor sigmoid(const at::Tensor& x) {
  const at::Tensor result = fresh(x);
  if (x.numel() > 0) aclnn::sigmoid(View(x), View(result));
  return result;
}

at::Tensor sigmoid_backward(const at::Tensor& grad, const at::Tensor& y) {
  const at::Tensor closed = times(y, -1.0);
  if (closed.numel() > 0) aclnn::adds(View(closed), Number(1.0), Number(1.0), View(closed));
  return times(grad, times(y, closed));
}

}  // namespace danlu::npu
