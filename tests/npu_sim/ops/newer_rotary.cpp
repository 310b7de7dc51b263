// Rotary embeddings without a header in 8.1: the variant "old" is built without this file.
#include "ops/rotary.h"

using namespace npu_sim;

NPU_SIM_DEFINE(aclnnRotaryPositionEmbedding, const aclTensor* x, const aclTensor* cos,
               const aclTensor* sin, int64_t mode, const aclTensor* out) {
  NPU_SIM_PLAN(aclnnRotaryPositionEmbedding) {
    const Tensor a = p.in(x, "x"), c = p.in(cos, "cos"), s = p.in(sin, "sin"),
                 o = p.out(out, "out");
    check_rotary(p, a, c, s, mode);
    p.same_dtype(a, o);
    p.shape(o, a.dims());
    p.run([=](Run& run) { write(bytes(run, o), rotated(run, a, c, s, mode, false)); });
  });
}

NPU_SIM_DEFINE(aclnnRotaryPositionEmbeddingGrad, const aclTensor* dy, const aclTensor* cos,
               const aclTensor* sin, const aclTensor* xOptional, int64_t mode,
               const aclTensor* dxOut, const aclTensor* dcosOut, const aclTensor* dsinOut) {
  NPU_SIM_PLAN(aclnnRotaryPositionEmbeddingGrad) {
    const Tensor d = p.in(dy, "dy"), c = p.in(cos, "cos"), s = p.in(sin, "sin");
    const Tensor x = p.optional(xOptional, "xOptional"), dx = p.out(dxOut, "dxOut");
    const Tensor dc = p.out(dcosOut, "dcosOut"), ds = p.out(dsinOut, "dsinOut");
    check_rotary(p, d, c, s, mode);
    p.same_dtype(d, dx);
    p.shape(dx, d.dims());
    p.shape(dc, c.dims());
    p.shape(ds, s.dims());
    if (x) throw Refused{561002, "gradients of the tables are not simulated"};
    p.run([=](Run& run) { write(bytes(run, dx), rotated(run, d, c, s, mode, true)); });
  });
}
