// The gradient of GELU in the form that is named: the variant "old" is built without this file.
#include <cmath>

#include "ops/kinds.h"

using namespace npu_sim;

// The derivative of x Φ(x) is Φ(x) + x φ(x); that of the approximation follows from tanh' = 1 −
// tanh².
NPU_SIM_DEFINE(aclnnGeluBackwardV2, const aclTensor* gradOutput, const aclTensor* self,
               char* approximate, aclTensor* gradInput) {
  NPU_SIM_PLAN(aclnnGeluBackwardV2) {
    const Tensor g = p.in(gradOutput, "gradOutput"), a = p.in(self, "self"),
                 o = p.out(gradInput, "gradInput");
    for (const Tensor& t : {g, a, o}) p.dtype(t, kFloats);
    p.shape(g, a.dims());
    p.shape(o, a.dims());
    const std::string how = approximate ? approximate : "";
    p.require(how == "none" || how == "tanh", "approximate is \"none\" or \"tanh\"");
    p.run([=](Run& run) {
      std::vector<double> u = read<double>(bytes(run, a));
      const std::vector<double> d = read<double>(bytes(run, g));
      for (size_t i = 0; i < u.size(); ++i) {
        const double x = u[i];
        double slope = 0;
        if (how == "none") {
          const double density = std::exp(-x * x / 2) / std::sqrt(2 * std::acos(-1.0));
          slope = 0.5 * std::erfc(-x / std::sqrt(2.0)) + x * density;
        } else {
          const double c = std::sqrt(2 / std::acos(-1.0));
          const double t = std::tanh(c * (x + 0.044715 * x * x * x));
          slope = 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * c * (1 + 3 * 0.044715 * x * x);
        }
        u[i] = d[i] * slope;
      }
      write(bytes(run, o), u);
    });
  });
}
