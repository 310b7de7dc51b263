// With a libtorch whose FlashAttention takes no windows (before 2.4) ATen's operators attend.
#include "ops/cuda/entries.h"

namespace danlu::ops {

void cuda::add_flash_attention(Backend&) {}

}  // namespace danlu::ops
