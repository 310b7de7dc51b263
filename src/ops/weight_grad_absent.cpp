// Builds whose libtorch brings a oneDNN inside it: a second one beside that is asking for trouble.
#include "base/error.h"
#include "ops/weight_grad.h"

namespace danlu::ops {

bool cpu::has_bf16_sums() { return false; }

void cpu::add_bf16_weight_grad(const at::Tensor&, const at::Tensor&, const at::Tensor&) {
  throw InternalError("[weight_grad] this build has no sums of bf16 products");
}

}  // namespace danlu::ops
