// In a program that was built without nvcc ATen's operators do what kernels would.
#include "ops/cuda/entries.h"

namespace danlu::ops {

void cuda::add_kernels(Backend&) {}

}  // namespace danlu::ops
