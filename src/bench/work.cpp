#include "bench/work.h"

#include <algorithm>

namespace danlu::bench {
namespace {

double compute_seconds(const Work& work, const Limits& limits) {
  // Some processors multiply more f32 than bf16; there bf16 is widened.
  return work.flops /
         (work.in_bf16 ? std::max(limits.bf16_flops, limits.f32_flops) : limits.f32_flops);
}

double memory_seconds(const Work& work, const Limits& limits) {
  const double both = std::min(work.bytes_read, work.bytes_written);
  return 2 * both / limits.update_bytes + (work.bytes() - 2 * both) / limits.read_bytes;
}

}  // namespace

double least_seconds(const Work& work, const Limits& limits) {
  return std::max(compute_seconds(work, limits), memory_seconds(work, limits));
}

Bound bound_of(const Work& work, const Limits& limits) {
  return compute_seconds(work, limits) >= memory_seconds(work, limits) ? Bound::kCompute
                                                                       : Bound::kMemory;
}

}  // namespace danlu::bench
