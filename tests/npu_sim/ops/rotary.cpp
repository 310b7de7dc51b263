#include "ops/rotary.h"

namespace npu_sim {
namespace {

/// Which element of a row is turned with element j, and the sign of its part in j.
struct Partner {
  int64_t other;
  double sign;
};

Partner partner(int64_t j, int64_t width, int64_t mode) {
  if (mode == 0) return j < width / 2 ? Partner{j + width / 2, -1} : Partner{j - width / 2, 1};
  return j % 2 == 0 ? Partner{j + 1, -1} : Partner{j - 1, 1};
}

}  // namespace

void check_rotary(Plan& p, const Tensor& x, const Tensor& cos, const Tensor& sin, int64_t mode) {
  p.dtype(x, kFloats);
  p.require(x.rank() == 4, "'x' has 4 dimensions");
  p.require(x.dim(3) % 2 == 0 && x.dim(3) <= 1024, "the last size is even and at most 1024");
  if (mode > 1 && mode < 4) throw Refused{561002, "modes 2 and 3 are not simulated"};
  p.require(mode == 0 || mode == 1, "mode is 0 … 3");
  for (const Tensor& table : {cos, sin}) {
    View seen;
    p.same_dtype(x, table);
    p.require(table.rank() == 4 && table.dim(3) == x.dim(3),
              "the tables have 4 dimensions and the width of x");
    p.require(broadcast_to(table.view, x.dims(), &seen),
              "tables of " + shown(table.dims()) + " for " + shown(x.dims()));
  }
  p.shape(sin, cos.dims());
}

std::vector<double> rotated(const Run& run, const Tensor& x, const Tensor& cos, const Tensor& sin,
                            int64_t mode, bool back) {
  const std::vector<double> in = read<double>(bytes(run, x));
  const std::vector<double> c = read<double>(seen_as(run, cos, x.dims())),
                            s = read<double>(seen_as(run, sin, x.dims()));
  const int64_t width = x.dim(3);
  std::vector<double> out(in.size());
  for (size_t i = 0; i < in.size(); ++i) {
    const auto j = static_cast<int64_t>(i) % width;
    const Partner q = partner(j, width, mode);
    const size_t k = i - at(j) + at(q.other);
    // Forward: out[j] gets sign·x[k]·sin[j]; transposed: what j gave to k, with k's sign and k's
    // sin.
    out[i] = in[i] * c[i] + (back ? -q.sign * in[k] * s[k] : q.sign * in[k] * s[i]);
  }
  return out;
}

}  // namespace npu_sim

using namespace npu_sim;

NPU_SIM_DEFINE(aclnnApplyRotaryPosEmb, aclTensor* queryRef, aclTensor* keyRef, const aclTensor* cos,
               const aclTensor* sin, int64_t layout) {
  NPU_SIM_PLAN(aclnnApplyRotaryPosEmb) {
    const Tensor q = p.inout(queryRef, "queryRef"), k = p.inout(keyRef, "keyRef");
    const Tensor c = p.in(cos, "cos"), s = p.in(sin, "sin");
    p.only_910b();
    p.require(layout == 1, "layout is 1 (BSND)");
    check_rotary(p, q, c, s, 0);
    check_rotary(p, k, c, s, 0);
    p.require(q.dim(3) == 128 && c.dim(2) == 1, "D is 128, and the tables have one head");
    p.run([=](Run& run) {
      write(bytes(run, q), rotated(run, q, c, s, 0, false));
      write(bytes(run, k), rotated(run, k, c, s, 0, false));
    });
  });
}
