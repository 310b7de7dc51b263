#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include "ops/fused_cpu.h"

namespace danlu::ops::cpu {
namespace rms_norm_detail {

// Weight gradients are summed per block, then over blocks in order: the same for any thread count.
constexpr int64_t kBlockRows = 64;

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
  const int64_t blocks = (rows + kBlockRows - 1) / kBlockRows;
  at::parallel_for(0, blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t row = block * kBlockRows;
      const NormShape shape{element_of(x), static_cast<size_t>(std::min(kBlockRows, rows - row)),
                            static_cast<size_t>(width), eps};
      body(block, shape, row);
    }
  });
}

/// rstd: of each row.
at::Tensor normalised(const at::Tensor& x, const at::Tensor& weight_D, double eps,
                      const at::Tensor& rstd) {
  at::Tensor y = at::empty(x.sizes(), x.options());
  each_block(x, eps, [&](int64_t, const NormShape& shape, int64_t row) {
    rms_norm_forward(shape, at_row(x, row), weight_D.data_ptr(), at_row(y, row),
                     rstd.data_ptr<float>() + row);
  });
  return y;
}

at::Tensor room_for_rstd(const at::Tensor& x) {
  return at::empty({x.numel() / std::max<int64_t>(1, x.size(-1))}, x.options().dtype(at::kFloat));
}

class FusedRmsNorm : public torch::autograd::Function<FusedRmsNorm> {
 public:
  using List = torch::autograd::variable_list;
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, const at::Tensor& given,
                            const at::Tensor& given_weight, double eps) {
    const at::Tensor x = given.contiguous(), weight_D = given_weight.contiguous();
    const at::Tensor rstd = room_for_rstd(x);
    const at::Tensor y = normalised(x, weight_D, eps, rstd);
    ctx->save_for_backward({x, weight_D, rstd});
    return y;
  }

  static List backward(torch::autograd::AutogradContext* ctx, const List& grads) {
    const List saved = ctx->get_saved_variables();
    const at::Tensor &x = saved[0], &weight_D = saved[1], &rstd = saved[2];
    const at::Tensor dy = grads[0].contiguous();
    at::Tensor dx = ctx->needs_input_grad(0) ? at::empty_like(x) : at::Tensor();
    const bool weight_grad = ctx->needs_input_grad(1);
    const int64_t blocks = (rstd.numel() + kBlockRows - 1) / kBlockRows;
    const at::Tensor partial_BD =
        weight_grad ? at::zeros({blocks, x.size(-1)}, rstd.options()) : at::Tensor();
    each_block(x, 0, [&](int64_t block, const NormShape& shape, int64_t row) {
      rms_norm_backward(shape, at_row(x, row), weight_D.data_ptr(), rstd.data_ptr<float>() + row,
                        at_row(dy, row), dx.defined() ? at_row(dx, row) : nullptr,
                        weight_grad ? partial_BD.data_ptr<float>() + block * x.size(-1) : nullptr);
    });
    return {dx, weight_grad ? partial_BD.sum(0).to(weight_D.scalar_type()) : at::Tensor(), {}};
  }
};

}  // namespace rms_norm_detail

at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& weight_D, double eps) {
  using namespace rms_norm_detail;
  if (!needs_no_graph({&x, &weight_D})) return FusedRmsNorm::apply(x, weight_D, eps);
  const at::Tensor rows = x.contiguous();
  return normalised(rows, weight_D.contiguous(), eps, room_for_rstd(rows));
}

}  // namespace danlu::ops::cpu
