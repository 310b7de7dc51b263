// RMS norms: everything in f32 and wider, one rounding at the end.
#include <cmath>

#include "core/config.h"
#include "ops/kinds.h"

using namespace npu_sim;

namespace {

struct Rows {
  int64_t rows = 1, width = 1;
};

/// x = [rows, gamma's dimensions]; the chip's and types' rules.
Rows check_norm(Plan& p, const Tensor& x, const Tensor& gamma) {
  p.require(config().chip.family != Family::k910A, "RmsNorm is not supported on this chip");
  p.dtype(x, kFloats);
  p.dtype(gamma, kFloats);
  p.require(gamma.dtype() == x.dtype() || gamma.dtype() == ACL_FLOAT,
            "gamma has x's type or DT_FLOAT");
  p.require(x.rank() >= 1 && x.rank() <= 8 && gamma.rank() >= 1 && gamma.rank() <= x.rank(),
            "ranks of x and gamma");
  Rows r;
  const int64_t outer = x.rank() - gamma.rank();
  for (int64_t i = 0; i < x.rank(); ++i) {
    (i < outer ? r.rows : r.width) *= x.dim(i);
    if (i >= outer) p.require(x.dim(i) == gamma.dim(i - outer), "gamma is not as wide as x");
  }
  if (config().chip.family == Family::k310P) {
    p.require(r.width * static_cast<int64_t>(size_of(x.dtype())) >= 32,
              "the last dimension has less than 32 bytes");
  }
  return r;
}

/// rstd has x's rank, with 1 in the dimensions that are summed.
void check_rstd(Plan& p, const Tensor& rstd, const Tensor& x, const Tensor& gamma) {
  std::vector<int64_t> dims = x.dims();
  for (int64_t i = x.rank() - gamma.rank(); i < x.rank(); ++i) dims[at(i)] = 1;
  p.dtype(rstd, {ACL_FLOAT});
  p.shape(rstd, dims);
}

void normalise(const std::vector<double>& x, const std::vector<double>& gamma, double epsilon,
               Rows r, std::vector<double>* y, std::vector<double>* rstd) {
  y->resize(x.size());
  rstd->resize(at(r.rows));
  for (int64_t i = 0; i < r.rows; ++i) {
    double squares = 0;
    for (int64_t j = 0; j < r.width; ++j)
      squares += x[at(i * r.width + j)] * x[at(i * r.width + j)];
    const double factor = 1 / std::sqrt(squares / static_cast<double>(r.width) + epsilon);
    (*rstd)[at(i)] = factor;
    for (int64_t j = 0; j < r.width; ++j) {
      (*y)[at(i * r.width + j)] = x[at(i * r.width + j)] * factor * gamma[at(j)];
    }
  }
}

}  // namespace

NPU_SIM_DEFINE(aclnnRmsNorm, const aclTensor* x, const aclTensor* gamma, double epsilon,
               const aclTensor* yOut, const aclTensor* rstdOut) {
  NPU_SIM_PLAN(aclnnRmsNorm) {
    const Tensor a = p.in(x, "x"), g = p.in(gamma, "gamma"), y = p.out(yOut, "yOut"),
                 s = p.out(rstdOut, "rstdOut");
    const Rows r = check_norm(p, a, g);
    p.same_dtype(a, y);
    p.shape(y, a.dims());
    check_rstd(p, s, a, g);
    p.run([=](Run& run) {
      std::vector<double> values, rstd;
      normalise(read<double>(bytes(run, a)), read<double>(bytes(run, g)), epsilon, r, &values,
                &rstd);
      write(bytes(run, y), values);
      write(bytes(run, s), rstd);
    });
  });
}

NPU_SIM_DEFINE(aclnnAddRmsNorm, const aclTensor* x1, const aclTensor* x2, const aclTensor* gamma,
               double epsilon, const aclTensor* yOut, const aclTensor* rstdOut,
               const aclTensor* xOut) {
  NPU_SIM_PLAN(aclnnAddRmsNorm) {
    const Tensor a = p.in(x1, "x1"), b = p.in(x2, "x2"), g = p.in(gamma, "gamma");
    const Tensor y = p.out(yOut, "yOut"), s = p.out(rstdOut, "rstdOut"), x = p.out(xOut, "xOut");
    const Rows r = check_norm(p, a, g);
    for (const Tensor& t : {b, y, x}) {
      p.same_dtype(a, t);
      p.shape(t, a.dims());
    }
    check_rstd(p, s, a, g);
    p.run([=](Run& run) {
      std::vector<double> sum = read<double>(bytes(run, a)), values, rstd;
      const std::vector<double> other = read<double>(bytes(run, b));
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += other[i];
      normalise(sum, read<double>(bytes(run, g)), epsilon, r, &values, &rstd);
      write(bytes(run, x), sum);
      write(bytes(run, y), values);
      write(bytes(run, s), rstd);
    });
  });
}

NPU_SIM_DEFINE(aclnnRmsNormGrad, const aclTensor* dy, const aclTensor* x, const aclTensor* rstd,
               const aclTensor* gamma, const aclTensor* dxOut, const aclTensor* dgammaOut) {
  NPU_SIM_PLAN(aclnnRmsNormGrad) {
    const Tensor d = p.in(dy, "dy"), a = p.in(x, "x"), s = p.in(rstd, "rstd"),
                 g = p.in(gamma, "gamma");
    const Tensor dx = p.out(dxOut, "dxOut"), dg = p.out(dgammaOut, "dgammaOut");
    const Rows r = check_norm(p, a, g);
    p.require(a.rank() >= 2 && g.rank() <= 7, "x has 2 to 8 dimensions, gamma at most 7");
    for (const Tensor& t : {d, dx}) {
      p.same_dtype(a, t);
      p.shape(t, a.dims());
    }
    p.dtype(s, {ACL_FLOAT});
    p.require(s.view.numel() == r.rows, "rstd has " + std::to_string(s.view.numel()) +
                                            " elements for " + std::to_string(r.rows) + " rows");
    p.dtype(dg, {ACL_FLOAT});
    p.shape(dg, g.dims());
    p.run([=](Run& run) {
      const std::vector<double> up = read<double>(bytes(run, d)), in = read<double>(bytes(run, a));
      const std::vector<double> factor = read<double>(bytes(run, s)),
                                weight = read<double>(bytes(run, g));
      std::vector<double> down(in.size());
      std::vector<float> dgamma(at(r.width));
      for (const int64_t i : run.order(r.rows)) {
        double dot = 0;
        for (int64_t j = 0; j < r.width; ++j)
          dot += up[at(i * r.width + j)] * weight[at(j)] * in[at(i * r.width + j)];
        const double f = factor[at(i)], mean = dot * f * f / static_cast<double>(r.width);
        for (int64_t j = 0; j < r.width; ++j) {
          const size_t k = at(i * r.width + j);
          down[k] = f * (up[k] * weight[at(j)] - in[k] * mean);
          dgamma[at(j)] += static_cast<float>(up[k] * in[k] * f);
        }
      }
      write(bytes(run, dx), down);
      write(bytes(run, dg), dgamma);
    });
  });
}
