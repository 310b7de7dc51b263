// SwiGLU: gate and up lie side by side.
#include <cmath>

#include "ops/kinds.h"

using namespace npu_sim;

namespace {

Around check_halves(Plan& p, const Tensor& x, int64_t dim) {
  p.dtype(x, kFloats);
  p.require(x.view.contiguous(), "'x' is not contiguous");
  const int64_t axis = p.axis(x, dim);
  p.require(x.dim(axis) % 2 == 0, "the size on dim is odd");
  return around(x.dims(), axis);
}

void check_half(Plan& p, const Tensor& half, const Tensor& x, int64_t dim) {
  std::vector<int64_t> dims = x.dims();
  dims[at(p.axis(x, dim))] /= 2;
  p.same_dtype(x, half);
  p.shape(half, dims);
}

}  // namespace

NPU_SIM_DEFINE(aclnnSwiGlu, const aclTensor* x, int64_t dim, const aclTensor* out) {
  NPU_SIM_PLAN(aclnnSwiGlu) {
    const Tensor a = p.in(x, "x"), o = p.out(out, "out");
    const Around r = check_halves(p, a, dim);
    check_half(p, o, a, dim);
    p.run([=](Run& run) {
      const std::vector<double> in = read<double>(bytes(run, a));
      const int64_t half = r.middle / 2 * r.inner;
      std::vector<double> values(in.size() / 2);
      for (int64_t i = 0; i < r.outer; ++i) {
        for (int64_t j = 0; j < half; ++j) {
          const double gate = in[at(2 * i * half + j)], up = in[at(2 * i * half + half + j)];
          values[at(i * half + j)] = gate / (1 + std::exp(-gate)) * up;
        }
      }
      write(bytes(run, o), values);
    });
  });
}

NPU_SIM_DEFINE(aclnnSwiGluGrad, const aclTensor* yGrad, const aclTensor* x, int64_t dim,
               const aclTensor* out) {
  NPU_SIM_PLAN(aclnnSwiGluGrad) {
    const Tensor d = p.in(yGrad, "yGrad"), a = p.in(x, "x"), o = p.out(out, "out");
    const Around r = check_halves(p, a, dim);
    check_half(p, d, a, dim);
    p.require(d.view.contiguous(), "'yGrad' is not contiguous");
    p.require(a.view.numel() > 0, "'x' is empty");
    p.same_dtype(a, o);
    p.shape(o, a.dims());
    p.run([=](Run& run) {
      const std::vector<double> in = read<double>(bytes(run, a)),
                                up_grad = read<double>(bytes(run, d));
      const int64_t half = r.middle / 2 * r.inner;
      std::vector<double> values(in.size());
      for (int64_t i = 0; i < r.outer; ++i) {
        for (int64_t j = 0; j < half; ++j) {
          const size_t k = at(2 * i * half + j), l = at(2 * i * half + half + j);
          const double s = 1 / (1 + std::exp(-in[k])), g = up_grad[at(i * half + j)];
          values[k] = g * in[l] * s * (1 + in[k] * (1 - s));
          values[l] = g * in[k] * s;
        }
      }
      write(bytes(run, o), values);
    });
  });
}
