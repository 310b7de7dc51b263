// Softmax and its logarithm along a dimension.
#include <cmath>

#include "ops/kinds.h"

using namespace npu_sim;

namespace {

/// Calls for each row along an axis with the place of its first element; `inner` is the step.
template <typename F>
void each_row(const Around& r, F&& use) {
  for (int64_t i = 0; i < r.outer; ++i) {
    for (int64_t j = 0; j < r.inner; ++j) use(at(i * r.middle * r.inner + j));
  }
}

void forward(Plan& p, const aclTensor* self, int64_t dim, aclTensor* out, bool logarithm) {
  const Tensor a = p.in(self, "self"), o = p.out(out, "out");
  p.dtype(a, kFloats);
  p.dtype(o, kFloats);
  p.shape(o, a.dims());
  const Around r = around(a.dims(), p.axis(a, dim));
  p.run([=](Run& run) {
    std::vector<double> v = read<double>(bytes(run, a));
    each_row(r, [&](size_t first) {
      double most = -INFINITY, sum = 0;
      for (int64_t i = 0; i < r.middle; ++i) most = std::max(most, v[first + at(i * r.inner)]);
      for (int64_t i = 0; i < r.middle; ++i) sum += std::exp(v[first + at(i * r.inner)] - most);
      for (int64_t i = 0; i < r.middle; ++i) {
        double& x = v[first + at(i * r.inner)];
        x = logarithm ? x - most - std::log(sum) : std::exp(x - most) / sum;
      }
    });
    write(bytes(run, o), v);
  });
}

void backward(Plan& p, const aclTensor* gradOutput, const aclTensor* output, int64_t dim,
              aclTensor* out, bool logarithm) {
  const Tensor g = p.in(gradOutput, "gradOutput"), y = p.in(output, "output"),
               o = p.out(out, "out");
  p.dtype(g, kFloats);
  p.dtype(y, kFloats);
  p.shape(y, g.dims());
  p.shape(o, g.dims());
  const Around r = around(g.dims(), p.axis(g, dim));
  p.run([=](Run& run) {
    std::vector<double> d = read<double>(bytes(run, g));
    const std::vector<double> v = read<double>(bytes(run, y));
    each_row(r, [&](size_t first) {
      double sum = 0;
      for (int64_t i = 0; i < r.middle; ++i) {
        const size_t k = first + at(i * r.inner);
        sum += logarithm ? d[k] : d[k] * v[k];
      }
      for (int64_t i = 0; i < r.middle; ++i) {
        const size_t k = first + at(i * r.inner);
        d[k] = logarithm ? d[k] - std::exp(v[k]) * sum : v[k] * (d[k] - sum);
      }
    });
    write(bytes(run, o), d);
  });
}

}  // namespace

NPU_SIM_DEFINE(aclnnSoftmax, const aclTensor* self, int64_t dim, aclTensor* out) {
  NPU_SIM_PLAN(aclnnSoftmax) { forward(p, self, dim, out, false); });
}

NPU_SIM_DEFINE(aclnnLogSoftmax, const aclTensor* self, int64_t dim, aclTensor* out) {
  NPU_SIM_PLAN(aclnnLogSoftmax) { forward(p, self, dim, out, true); });
}

NPU_SIM_DEFINE(aclnnSoftmaxBackward, const aclTensor* gradOutput, const aclTensor* output,
               int64_t dim, aclTensor* out) {
  NPU_SIM_PLAN(aclnnSoftmaxBackward) { backward(p, gradOutput, output, dim, out, false); });
}

NPU_SIM_DEFINE(aclnnLogSoftmaxBackward, const aclTensor* gradOutput, const aclTensor* output,
               int64_t dim, aclTensor* out) {
  NPU_SIM_PLAN(aclnnLogSoftmaxBackward) { backward(p, gradOutput, output, dim, out, true); });
}
