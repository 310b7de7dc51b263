#include "optim/kernels.h"

#include <cmath>
#include <cstring>

#include "base/cpu_class.h"

// The kernels of ops use Highway because they need exp and shuffles; these loops have nothing that
// the compiler does not vectorise by itself (-O3, without errno and traps: CMakeLists.txt).
#define DANLU_LOOP inline __attribute__((always_inline))

namespace danlu::optim {
namespace {

#if defined(__x86_64__)
template <typename Loop>
[[gnu::target("arch=x86-64-v4"), gnu::flatten]] auto with_avx512(const Loop& loop) {
  return loop();
}
template <typename Loop>
[[gnu::target("arch=x86-64-v3"), gnu::flatten]] auto with_avx2(const Loop& loop) {
  return loop();
}
#endif

/// Runs the copy of the loop that is compiled for the class of processor in use.
template <typename Loop>
auto dispatched(const Loop& loop) {
#if defined(__x86_64__)
  if (cpu_class() >= CpuClass::kAvx512) return with_avx512(loop);
  if (cpu_class() >= CpuClass::kAvx2) return with_avx2(loop);
#endif
  return loop();
}

DANLU_LOOP void adamw_loop(float* __restrict master, float* __restrict exp_avg,
                           float* __restrict exp_avg_sq, const float* __restrict grad,
                           int64_t count, const AdamWScalars s) {
  for (int64_t i = 0; i < count; ++i) {
    const float g = grad[i] * s.grad_scale;
    const float m = exp_avg[i] * s.beta1 + s.one_minus_beta1 * g;
    const float v = exp_avg_sq[i] * s.beta2 + s.one_minus_beta2 * (g * g);
    exp_avg[i] = m;
    exp_avg_sq[i] = v;
    const float denominator = std::sqrt(v) * s.inv_sqrt_bias2 + s.eps;
    master[i] = master[i] * s.keep - s.step_size * (m / denominator);
  }
}

DANLU_LOOP double squares_loop(const float* __restrict values, int64_t count) {
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

DANLU_LOOP void add_bf16_loop(float* __restrict to, const uint16_t* __restrict from,
                              int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t bits = static_cast<uint32_t>(from[i]) << 16;
    float value;
    std::memcpy(&value, &bits, sizeof value);
    to[i] += value;
  }
}

DANLU_LOOP void round_loop(uint16_t* __restrict to, const float* __restrict from, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    uint32_t bits;
    std::memcpy(&bits, from + i, sizeof bits);
    const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    // A NaN must not round to infinity.
    const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
    to[i] = static_cast<uint16_t>(nan ? ((bits >> 16) | 0x40u) : rounded);
  }
}

}  // namespace

void adamw_update(float* master, float* exp_avg, float* exp_avg_sq, const float* grad,
                  int64_t count, const AdamWScalars& scalars) {
  dispatched([=] { adamw_loop(master, exp_avg, exp_avg_sq, grad, count, scalars); });
}

double sum_of_squares(const float* values, int64_t count) {
  return dispatched([=] { return squares_loop(values, count); });
}

void add_bf16(float* to, const uint16_t* from, int64_t count) {
  dispatched([=] { add_bf16_loop(to, from, count); });
}

void round_to_bf16(uint16_t* to, const float* from, int64_t count) {
  dispatched([=] { round_loop(to, from, count); });
}

}  // namespace danlu::optim
