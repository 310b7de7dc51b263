// The optimizer's update and what looks at all gradients.
#include <cmath>

#include "ops/kinds.h"

using namespace npu_sim;

namespace {

struct AdamW {
  double lr, beta1, beta2, decay, eps;
  bool maximize;
};

void check_state(Plan& p, const Tensor& var, std::initializer_list<Tensor> others) {
  p.dtype(var, kFloats);
  for (const Tensor& t : others) {
    if (!t) continue;
    p.same_dtype(var, t);
    p.shape(t, var.dims());
  }
}

}  // namespace

NPU_SIM_DEFINE(aclnnApplyAdamWV2, aclTensor* varRef, aclTensor* mRef, aclTensor* vRef,
               aclTensor* maxGradNormOptionalRef, const aclTensor* grad, const aclTensor* step,
               float lr, float beta1, float beta2, float weightDecay, float eps, bool amsgrad,
               bool maximize) {
  NPU_SIM_PLAN(aclnnApplyAdamWV2) {
    const Tensor w = p.inout(varRef, "varRef"), m = p.inout(mRef, "mRef"),
                 v = p.inout(vRef, "vRef");
    const Tensor most =
        maxGradNormOptionalRef ? p.inout(maxGradNormOptionalRef, "maxGradNorm") : Tensor{};
    const Tensor g = p.in(grad, "grad"), t = p.in(step, "step");
    check_state(p, w, {m, v, most, g});
    p.require(!amsgrad || most, "amsgrad needs maxGradNorm");
    p.dtype(t, {ACL_INT64, ACL_FLOAT});
    p.require(t.view.numel() == 1, "'step' has one element");
    const AdamW a{lr, beta1, beta2, weightDecay, eps, maximize};
    p.run([=](Run& run) {
      // The kernel counts on by itself: the tensor holds the number of updates before this one.
      const double count = read<double>(bytes(run, t))[0] + 1;
      std::vector<double> weight = read<double>(bytes(run, w)), first = read<double>(bytes(run, m));
      std::vector<double> second = read<double>(bytes(run, v));
      std::vector<double> peak = amsgrad ? read<double>(bytes(run, most)) : std::vector<double>{};
      const std::vector<double> gradient = read<double>(bytes(run, g));
      const double right1 = 1 - std::pow(a.beta1, count), right2 = 1 - std::pow(a.beta2, count);
      for (size_t i = 0; i < weight.size(); ++i) {
        const double d = a.maximize ? -gradient[i] : gradient[i];
        weight[i] *= 1 - a.lr * a.decay;
        first[i] = a.beta1 * first[i] + (1 - a.beta1) * d;
        second[i] = a.beta2 * second[i] + (1 - a.beta2) * d * d;
        if (amsgrad) peak[i] = std::max(peak[i], second[i]);
        const double root = std::sqrt((amsgrad ? peak[i] : second[i]) / right2) + a.eps;
        weight[i] -= a.lr / right1 * first[i] / root;
      }
      write(bytes(run, w), weight);
      write(bytes(run, m), first);
      write(bytes(run, v), second);
      if (amsgrad) write(bytes(run, most), peak);
    });
  });
}

NPU_SIM_DEFINE(aclnnForeachNorm, const aclTensorList* x, const aclScalar* power,
               const aclTensorList* out) {
  NPU_SIM_PLAN(aclnnForeachNorm) {
    const std::vector<Tensor> in = p.in_list(x, "x"), to = p.out_list(out, "out");
    const double order = p.scalar(power, "p").value;
    p.require(in.size() == to.size() && !in.empty(), "as many outputs as inputs");
    p.require(order == 1 || order == 2, "p is 1 or 2");
    for (size_t i = 0; i < in.size(); ++i) {
      p.dtype(in[i], kFloats);
      p.same_dtype(in[i], to[i]);
      p.require(to[i].view.numel() == 1, "an output has one element");
    }
    p.run([=](Run& run) {
      for (size_t i = 0; i < in.size(); ++i) {
        double sum = 0;
        for (const double v : read<double>(bytes(run, in[i])))
          sum += order == 2 ? v * v : std::fabs(v);
        write(bytes(run, to[i]), std::vector<double>{order == 2 ? std::sqrt(sum) : sum});
      }
    });
  });
}

namespace {

void scale_all(Plan& p, const aclTensorList* x, const aclTensorList* out,
               const Tensor& device_factor, double factor) {
  const std::vector<Tensor> in = p.in_list(x, "x"), to = p.out_list(out, "out");
  p.require(in.size() == to.size() && !in.empty(), "as many outputs as inputs");
  for (size_t i = 0; i < in.size(); ++i) {
    p.dtype(in[i], {ACL_FLOAT, ACL_FLOAT16, ACL_BF16, ACL_INT32});
    p.same_dtype(in[i], to[i]);
    p.shape(to[i], in[i].dims());
  }
  p.run([=](Run& run) {
    const double by = device_factor ? read<double>(bytes(run, device_factor))[0] : factor;
    for (size_t i = 0; i < in.size(); ++i) {
      std::vector<double> values = read<double>(bytes(run, in[i]));
      for (double& v : values) v *= by;
      write(bytes(run, to[i]), values);
    }
  });
}

}  // namespace

NPU_SIM_DEFINE(aclnnForeachMulScalar, const aclTensorList* x, const aclTensor* scalar,
               aclTensorList* out) {
  NPU_SIM_PLAN(aclnnForeachMulScalar) {
    const Tensor factor = p.in(scalar, "scalar");
    p.require(factor.view.numel() == 1, "'scalar' has one element");
    scale_all(p, x, out, factor, 0);
  });
}

NPU_SIM_DEFINE(aclnnForeachMulScalarV2, const aclTensorList* x, const aclScalar* scalar,
               aclTensorList* out) {
  NPU_SIM_PLAN(aclnnForeachMulScalarV2) {
    scale_all(p, x, out, {}, p.scalar(scalar, "scalar").value);
  });
}
