#include "ops/dropout.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include "ops/check.h"

namespace danlu::ops {

at::Tensor dropout(const at::Tensor& x, double p, uint64_t seed) {
  require(p >= 0 && p < 1, "dropout", "probability ", p, " must be in [0, 1)");
  if (p == 0) return x;
  at::Generator generator = at::globalContext().defaultGenerator(x.device()).clone();
  generator.set_current_seed(seed);
  // The CPU draws no f16 numbers.
  const bool drawn_wider = x.is_cpu() && x.scalar_type() == at::kHalf;
  const at::TensorOptions drawn =
      x.options().requires_grad(false).dtype(drawn_wider ? at::kFloat : x.scalar_type());
  const at::Tensor kept = at::empty(x.sizes(), drawn).bernoulli_(1 - p, generator);
  return x * kept.div_(1 - p).to(x.scalar_type());
}

}  // namespace danlu::ops
