// Operators without a header in 8.1: the variant "old" is built without this file.
#include "ops/kinds.h"

using namespace npu_sim;

NPU_SIM_DEFINE(aclnnForeachNonFiniteCheckAndUnscale, aclTensorList* scaledGrads,
               aclTensor* foundInf, const aclTensor* invScale) {
  NPU_SIM_PLAN(aclnnForeachNonFiniteCheckAndUnscale) {
    const std::vector<Tensor> grads = p.inout_list(scaledGrads, "scaledGrads");
    const Tensor found = p.inout(foundInf, "foundInf"), scale = p.in(invScale, "invScale");
    p.require(!grads.empty() && grads.size() <= 256, "1 to 256 gradients");
    p.dtype(found, {ACL_FLOAT});
    p.dtype(scale, {ACL_FLOAT});
    p.require(found.view.numel() == 1 && scale.view.numel() == 1,
              "'foundInf' and 'invScale' have one element");
    for (const Tensor& grad : grads) {
      p.dtype(grad, kFloats);
      p.require(grad.view.contiguous(), "the gradients are contiguous");
    }
    p.run([=](Run& run) {
      const double factor = read<double>(bytes(run, scale))[0];
      bool finite = true;
      for (const Tensor& grad : grads) {
        std::vector<double> values = read<double>(bytes(run, grad));
        for (double& v : values) {
          finite = finite && std::isfinite(v);
          v *= factor;
        }
        write(bytes(run, grad), values);
      }
      if (!finite) write(bytes(run, found), std::vector<double>{1.0});
    });
  });
}
