#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "device/parallel.h"
#include "ops/empty_cpu.h"
#include "ops/kernels_cpu.h"

namespace danlu::ops::cpu {
namespace {

// Weight gradients are summed per block, then over blocks in order: the same for any thread count.
constexpr int64_t kNormBlockRows = 64;

const char* at_row(const at::Tensor& x, int64_t row) {
  return static_cast<const char*>(x.data_ptr()) + row * x.size(-1) * x.element_size();
}
char* at_row(at::Tensor& x, int64_t row) {
  return static_cast<char*>(x.data_ptr()) + row * x.size(-1) * x.element_size();
}

/// Calls body(block, its shape, its first row) for every block, in parallel.
template <typename Body>
void each_block(const at::Tensor& x, double eps, const Body& body) {
  const int64_t width = x.size(-1), rows = width == 0 ? 0 : x.numel() / width;
  const int64_t blocks = (rows + kNormBlockRows - 1) / kNormBlockRows;
  device::parallel_for(0, blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t row = block * kNormBlockRows;
      const NormShape shape{element_of(x),
                            static_cast<size_t>(std::min(kNormBlockRows, rows - row)),
                            static_cast<size_t>(width), eps};
      body(block, shape, row);
    }
  });
}

}  // namespace

NormResult rms_norm(const at::Tensor& x, const at::Tensor& weight_D, double eps) {
  at::Tensor y = empty_cpu(x.sizes(), x.scalar_type());
  const at::Tensor rstd = empty_cpu({x.numel() / std::max<int64_t>(1, x.size(-1))}, at::kFloat);
  each_block(x, eps, [&](int64_t, const NormShape& shape, int64_t row) {
    rms_norm_forward(shape, at_row(x, row), weight_D.data_ptr(), at_row(y, row),
                     rstd.data_ptr<float>() + row);
  });
  return {y, rstd};
}

NormGrads rms_norm_backward(const at::Tensor& x, const at::Tensor& weight_D, const at::Tensor& rstd,
                            const at::Tensor& given_dy, bool x_grad, bool weight_grad) {
  const at::Tensor dy = given_dy.contiguous();
  at::Tensor dx = x_grad ? at::empty_like(x) : at::Tensor();
  const int64_t blocks = (rstd.numel() + kNormBlockRows - 1) / kNormBlockRows;
  const at::Tensor partial_BD =
      weight_grad ? at::zeros({blocks, x.size(-1)}, rstd.options()) : at::Tensor();
  each_block(x, 0, [&](int64_t block, const NormShape& shape, int64_t row) {
    cpu::rms_norm_backward(
        shape, at_row(x, row), weight_D.data_ptr(), rstd.data_ptr<float>() + row, at_row(dy, row),
        dx.defined() ? at_row(dx, row) : nullptr,
        weight_grad ? partial_BD.data_ptr<float>() + block * x.size(-1) : nullptr);
  });
  return {dx, weight_grad ? column_sums(partial_BD) : at::Tensor()};
}

}  // namespace danlu::ops::cpu
