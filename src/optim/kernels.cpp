#include "optim/kernels.h"

#include <cmath>
#include <cstring>

// One source, one clone per instruction set, chosen when the library is loaded. The kernels of ops
// use Highway because they need exp, conversions and shuffles; these loops have nothing that the
// compiler does not vectorise by itself, on every architecture.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define DANLU_OPTIM_CLONES                                                     \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default"), \
                 optimize("O3", "no-math-errno", "no-trapping-math")))
#else
#define DANLU_OPTIM_CLONES
#endif

namespace danlu::optim {

DANLU_OPTIM_CLONES
void adamw_update(float* __restrict master, float* __restrict exp_avg, float* __restrict exp_avg_sq,
                  const float* __restrict grad, int64_t count, const AdamWScalars& scalars) {
  const AdamWScalars s = scalars;
  for (int64_t i = 0; i < count; ++i) {
    const float g = grad[i] * s.grad_scale;
    const float m = exp_avg[i] * s.beta1 + s.one_minus_beta1 * g;
    const float v = exp_avg_sq[i] * s.beta2 + s.one_minus_beta2 * (g * g);
    exp_avg[i] = m;
    exp_avg_sq[i] = v;
    // Not std::sqrt: a call of a function without these attributes would not vectorise.
    const float denominator = __builtin_sqrtf(v) * s.inv_sqrt_bias2 + s.eps;
    master[i] = master[i] * s.keep - s.step_size * (m / denominator);
  }
}

DANLU_OPTIM_CLONES
double sum_of_squares(const float* __restrict values, int64_t count) {
  // Sixteen running sums let the loop vectorise without letting the compiler reorder anything.
  constexpr int64_t kLanes = 16;
  double sums[kLanes] = {};
  const int64_t whole = count / kLanes * kLanes;
  for (int64_t i = 0; i < whole; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const double value = values[i + lane];
      sums[lane] += value * value;
    }
  }
  for (int64_t i = whole; i < count; ++i)
    sums[i - whole] += static_cast<double>(values[i]) * values[i];
  double total = 0;
  for (const double sum : sums) total += sum;
  return total;
}

DANLU_OPTIM_CLONES
void add_bf16(float* __restrict to, const uint16_t* __restrict from, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t bits = static_cast<uint32_t>(from[i]) << 16;
    float value;
    std::memcpy(&value, &bits, sizeof value);
    to[i] += value;
  }
}

DANLU_OPTIM_CLONES
void round_to_bf16(uint16_t* __restrict to, const float* __restrict from, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    uint32_t bits;
    std::memcpy(&bits, from + i, sizeof bits);
    const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    // A NaN must not round to infinity.
    const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
    to[i] = static_cast<uint16_t>(nan ? ((bits >> 16) | 0x40u) : rounded);
  }
}

}  // namespace danlu::optim
