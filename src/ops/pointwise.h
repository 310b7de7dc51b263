// ops/pointwise.h: sums, factors and rows, the glue between the other ops.
//
// Layers add with add(), and hand a tensor that two of them read through shared_by(): autograd sums
// the gradients of several readers by ATen, which a device need not have.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <vector>

#include "ops/main_grad.h"

namespace danlu::ops {

/// a + b of one shape and dtype. Grad through both.
at::Tensor add(const at::Tensor& a, const at::Tensor& b);
/// x_NO + bias_O in each row. Grad through both, the bias's to `main` as ops::linear's.
at::Tensor add_bias(const at::Tensor& x_NO, const at::Tensor& bias_O, const MainGradPtr& main = {});
/// x * factor. Grad through x.
at::Tensor scaled(const at::Tensor& x, double factor);
/// `count` times x, for as many readers: their gradients are summed by the device's table, where
/// autograd would sum them through ATen.
std::vector<at::Tensor> shared_by(int64_t count, const at::Tensor& x);
/// x cut along `dim` into views of `sizes`, which add up to its own. Grad through x.
std::vector<at::Tensor> parts_of(const at::Tensor& x, const std::vector<int64_t>& sizes,
                                 int64_t dim);
/// x with other sizes, none of them -1, as at::reshape; of a contiguous inference tensor on the CPU
/// past libtorch's dispatcher. Grad through x. Errors: sizes of another number of elements.
at::Tensor shaped(const at::Tensor& x, at::IntArrayRef sizes);
/// Rows `index_n` (int64 on x's device, each inside x) of x_NH. Grad through x.
at::Tensor take_rows(const at::Tensor& x_NH, const at::Tensor& index_n);
/// x_NH with the rows `index_n` (int64 on x's device, each inside x and there once) of rows_nH.
/// Grad through both.
at::Tensor with_rows(const at::Tensor& x_NH, const at::Tensor& index_n, const at::Tensor& rows_nH);

/// Row i of the result [rows, H] is the sum of the rows of x_nH whose index is i, summed in f32
/// (f64 for f64) in their order and rounded once. index_n: int64 on x's device. Grad through x.
at::Tensor rows_summed(const at::Tensor& x_nH, const at::Tensor& index_n, int64_t rows);
/// Row i of x_NH times factor_N[i] (f32, f64 for f64; of sizes [N] or [N, 1]), rounded once. Grad
/// through both.
at::Tensor scale_rows(const at::Tensor& x_NH, const at::Tensor& factor_N);
/// `parts` [n_i, H] below each other. Grad through all.
at::Tensor rows_joined(const std::vector<at::Tensor>& parts);

/// Where a few numbers of a pass, such as log-probabilities and scores, are worked with by ATen's
/// operators in f64: the device itself, or the host if the device computes through its table alone.
c10::Device device_of_numbers(const c10::Device& device);
inline bool computes_numbers(const c10::Device& device) {
  return device_of_numbers(device) == device;
}
/// x there. Grad through x.
at::Tensor as_numbers(const at::Tensor& x);

/// sum += x, which is rounded to the sum's type if that is narrower. Same shape; any strides.
/// Without gradient.
void add_to(const at::Tensor& sum, const at::Tensor& x);
/// out = a + b, all of one dtype and shape; `out` may be one of them. Without gradient.
void add_into(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b);
/// out = the larger of a and b, as add_into.
void larger_into(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b);
/// `parts` (at least one; one: itself) beside each other along `dim`, by copies, which every device
/// has. Without gradient.
at::Tensor joined(const std::vector<at::Tensor>& parts, int64_t dim);
/// sum_NH[index[i]] += rows_nH[i] in the sum's type, in order of i. Without gradient.
void add_rows(const at::Tensor& sum_NH, const at::Tensor& index_n, const at::Tensor& rows_nH);
/// Sums over the rows of x_NO, added in f32 (f64 for f64) and given so. Without gradient.
at::Tensor column_sums(const at::Tensor& x_NO);

}  // namespace danlu::ops
