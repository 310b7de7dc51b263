// Products of 16-bit numbers whose results are f32 or are added to f32, which ATen has no operator
// for: cublasGemmEx, on the handle and the stream that libtorch keeps for this thread.
#include <ATen/core/Tensor.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/ops/empty.h>
#include <c10/core/DeviceGuard.h>
#include <cublas_v2.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "ops/aten/table.h"
#include "ops/cuda/entries.h"

namespace danlu::ops::cuda {
namespace {

/// A matrix as cuBLAS reads it, column by column: transposed if its rows are contiguous.
struct Operand {
  at::Tensor matrix;
  cublasOperation_t operation;
  int ld;
};

int int_of(int64_t size) {
  if (size > std::numeric_limits<int>::max())
    throw ModelError(tr("[linear] a matrix with {} rows or columns is too large for cuBLAS", size));
  return static_cast<int>(size);
}

/// cuBLAS counts column by column, so it sees the transposed matrix: [m, k] with contiguous rows is
/// its [k, m].
Operand operand_of(const at::Tensor& given) {
  const bool by_rows = given.stride(1) == 1 && given.stride(0) >= given.size(1);
  const bool by_columns = given.stride(0) == 1 && given.stride(1) >= given.size(0);
  if (by_columns && !by_rows) return {given, CUBLAS_OP_T, int_of(given.stride(1))};
  const at::Tensor matrix = by_rows ? given : given.contiguous();
  return {matrix, CUBLAS_OP_N, int_of(std::max(matrix.stride(0), matrix.size(1)))};
}

cudaDataType_t data_type_of(at::ScalarType type) {
  return type == at::kBFloat16 ? CUDA_R_16BF : CUDA_R_16F;
}

/// sum_MN (f32, of contiguous columns) = a_MK b_KN + beta * sum_MN; with beta 0 whatever it is.
void multiply_into(const at::Tensor& sum_MN, const at::Tensor& a_MK, const at::Tensor& b_KN,
                   float beta) {
  if (sum_MN.numel() == 0) return;
  const c10::DeviceGuard guard(sum_MN.device());
  const Operand a = operand_of(a_MK), b = operand_of(b_KN);
  const float one = 1;
  const cublasStatus_t status = cublasGemmEx(
      at::cuda::getCurrentCUDABlasHandle(), b.operation, a.operation, int_of(sum_MN.size(1)),
      int_of(sum_MN.size(0)), int_of(a_MK.size(1)), &one, b.matrix.data_ptr(),
      data_type_of(b_KN.scalar_type()), b.ld, a.matrix.data_ptr(), data_type_of(a_MK.scalar_type()),
      a.ld, &beta, sum_MN.data_ptr(), CUDA_R_32F,
      int_of(std::max(sum_MN.stride(0), sum_MN.size(1))), CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
  if (status != CUBLAS_STATUS_SUCCESS)
    throw DeviceError(tr("[linear] cuBLAS gives status {} for a product of {} x {} x {}",
                         static_cast<int>(status), a_MK.size(0), a_MK.size(1), b_KN.size(1)));
}

/// Whether cuBLAS writes f32 of it.
bool widens(const at::Tensor& x, at::ScalarType result) {
  return x.scalar_type() != at::kFloat && result == at::kFloat;
}

at::Tensor empty_f32(int64_t rows, int64_t columns, const at::Tensor& like) {
  return at::empty({rows, columns}, like.options().dtype(at::kFloat));
}

at::Tensor product(const at::Tensor& x_NI, const at::Tensor& weight_OI, const at::Tensor& bias_O,
                   at::ScalarType result) {
  if (!widens(x_NI, result)) return aten::product(x_NI, weight_OI, bias_O, result);
  const at::Tensor y_NO = empty_f32(x_NI.size(0), weight_OI.size(0), x_NI);
  if (bias_O.defined()) y_NO.copy_(bias_O.expand(y_NO.sizes()));
  multiply_into(y_NO, x_NI, weight_OI.t(), bias_O.defined() ? 1.0f : 0.0f);
  return y_NO;
}

at::Tensor input_grad(const at::Tensor& d_y_NO, const at::Tensor& weight_OI,
                      at::ScalarType result) {
  if (!widens(d_y_NO, result)) return aten::input_grad(d_y_NO, weight_OI, result);
  const at::Tensor sum_NI = empty_f32(d_y_NO.size(0), weight_OI.size(1), d_y_NO);
  multiply_into(sum_NI, d_y_NO, weight_OI, 0);
  return sum_NI;
}

at::Tensor weight_grad(const at::Tensor& d_y_NO, const at::Tensor& x_NI, at::ScalarType result) {
  if (!widens(x_NI, result)) return aten::weight_grad(d_y_NO, x_NI, result);
  const at::Tensor sum_OI = empty_f32(d_y_NO.size(1), x_NI.size(1), x_NI);
  multiply_into(sum_OI, d_y_NO.t(), x_NI, 0);
  return sum_OI;
}

void add_weight_grad(const at::Tensor& d_y_NO, const at::Tensor& x_NI, const at::Tensor& sum_OI,
                     bool is_fresh) {
  const bool has_contiguous_rows = sum_OI.stride(1) == 1 || sum_OI.size(1) == 1;
  if (x_NI.scalar_type() == at::kFloat || x_NI.size(0) == 0 || !has_contiguous_rows)
    return aten::add_weight_grad(d_y_NO, x_NI, sum_OI, is_fresh);
  multiply_into(sum_OI, d_y_NO.t(), x_NI, is_fresh ? 0.0f : 1.0f);
}

void add_product(const at::Tensor& x_NI, const at::Tensor& weight_OI, const at::Tensor& y_NO) {
  const bool has_contiguous_rows = y_NO.stride(1) == 1 || y_NO.size(1) == 1;
  if (x_NI.scalar_type() == at::kFloat || !has_contiguous_rows)
    return aten::add_product(x_NI, weight_OI, y_NO);
  multiply_into(y_NO, x_NI, weight_OI.t(), 1);
}

}  // namespace

void add_products(Backend& table) {
  table.product = &product;
  table.input_grad = &input_grad;
  table.weight_grad = &weight_grad;
  table.add_weight_grad = &add_weight_grad;
  table.add_product = &add_product;
}

}  // namespace danlu::ops::cuda
