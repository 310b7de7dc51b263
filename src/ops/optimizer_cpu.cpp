#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "base/cpu_class.h"
#include "base/dtype.h"
#include "base/finite.h"
#include "device/dtype.h"
#include "device/parallel.h"
#include "ops/kernels_cpu.h"

// The kernels of ops use Highway because they need exp and shuffles; these loops have nothing that
// the compiler does not vectorise by itself (-O3, without errno and traps: CMakeLists.txt).
#define DANLU_LOOP inline __attribute__((always_inline))

namespace danlu::ops::cpu {
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

/// The moments of an element, and what its master becomes.
DANLU_LOOP float updated(float master, float& exp_avg, float& exp_avg_sq, float grad,
                         const AdamWScalars& s) {
  const float g = grad * s.grad_scale;
  const float m = exp_avg * s.beta1 + s.one_minus_beta1 * g;
  const float v = exp_avg_sq * s.beta2 + s.one_minus_beta2 * (g * g);
  exp_avg = m;
  exp_avg_sq = v;
  const float denominator = std::sqrt(v) * s.inv_sqrt_bias2 + s.eps;
  return master * s.keep - s.step_size * (m / denominator);
}

DANLU_LOOP void adamw_loop(float* __restrict master, float* __restrict exp_avg,
                           float* __restrict exp_avg_sq, const float* __restrict grad,
                           int64_t count, const AdamWScalars s) {
  for (int64_t i = 0; i < count; ++i)
    master[i] = updated(master[i], exp_avg[i], exp_avg_sq[i], grad[i], s);
}

DANLU_LOOP float joined(uint16_t weight, int16_t low) {
  const uint32_t bits =
      (static_cast<uint32_t>(weight) << 16) + static_cast<uint32_t>(static_cast<int32_t>(low));
  float master;
  std::memcpy(&master, &bits, sizeof master);
  return master;
}

DANLU_LOOP void split(float master, uint16_t& weight, int16_t& low) {
  uint32_t bits;
  std::memcpy(&bits, &master, sizeof bits);
  // Rounded up, the largest of them would be a zero.
  const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
  weight = static_cast<uint16_t>(nan ? ((bits >> 16) | 0x40u) : ((bits + 0x8000u) >> 16));
  low = static_cast<int16_t>(nan ? 0u : bits);
}

DANLU_LOOP void split_adamw_loop(uint16_t* __restrict weight, int16_t* __restrict low,
                                 float* __restrict exp_avg, float* __restrict exp_avg_sq,
                                 const float* __restrict grad, int64_t count,
                                 const AdamWScalars s) {
  for (int64_t i = 0; i < count; ++i)
    split(updated(joined(weight[i], low[i]), exp_avg[i], exp_avg_sq[i], grad[i], s), weight[i],
          low[i]);
}

DANLU_LOOP void round_loop(uint16_t* __restrict to, const float* __restrict from, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    int16_t low;
    split(from[i], to[i], low);
  }
}

DANLU_LOOP void split_loop(const float* __restrict master, uint16_t* __restrict weight,
                           int16_t* __restrict low, int64_t count) {
  for (int64_t i = 0; i < count; ++i) split(master[i], weight[i], low[i]);
}

DANLU_LOOP void join_loop(float* __restrict master, const uint16_t* __restrict weight,
                          const int16_t* __restrict low, int64_t count) {
  for (int64_t i = 0; i < count; ++i) master[i] = joined(weight[i], low[i]);
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

char* state_element(const at::Tensor& x, int64_t index) {
  return static_cast<char*>(x.data_ptr()) + index * static_cast<int64_t>(x.element_size());
}

struct Halves {
  uint16_t* weight;
  int16_t* low;
};
Halves halves_at(const at::Tensor& weight, const at::Tensor& low, int64_t index) {
  return {reinterpret_cast<uint16_t*>(state_element(weight, index)),
          reinterpret_cast<int16_t*>(state_element(low, index))};
}

/// Elements of a weight of 16 bits, from their masters.
void round_into(const at::Tensor& weight, int64_t begin, const float* from, int64_t count) {
  if (weight.scalar_type() == at::kBFloat16) {
    auto* to = reinterpret_cast<uint16_t*>(state_element(weight, begin));
    dispatched([=] { round_loop(to, from, count); });
  } else {
    cast_elements(from, DType::kF32, state_element(weight, begin),
                  device::dtype_of(weight.scalar_type()), static_cast<size_t>(count));
  }
}

/// to[i] += from[i], bf16 or f16.
void add_half(float* to, const at::Tensor& x, int64_t begin, int64_t count) {
  const auto* from = reinterpret_cast<const uint16_t*>(state_element(x, begin));
  if (x.scalar_type() == at::kBFloat16) {
    dispatched([=] { add_bf16_loop(to, from, count); });
    return;
  }
  constexpr int64_t kPiece = 1024;
  float wide[kPiece];
  for (int64_t i = 0; i < count; i += kPiece) {
    const int64_t some = std::min(kPiece, count - i);
    cast_elements(from + i, DType::kF16, wide, DType::kF32, static_cast<size_t>(some));
    for (int64_t j = 0; j < some; ++j) to[i + j] += wide[j];
  }
}

}  // namespace

void adamw_update(const AdamWState& state, const std::vector<Chunk>& chunks,
                  std::span<const AdamWScalars> scalars) {
  const bool is_split = state.low.defined();
  float *const master = is_split ? nullptr : state.master.data_ptr<float>(),
               *const exp_avg = state.exp_avg.data_ptr<float>(),
               *const exp_avg_sq = state.exp_avg_sq.data_ptr<float>();
  const float* const grads = state.grad.data_ptr<float>();
  for_each_chunk(chunks, [&](size_t i) {
    const int64_t at = chunks[i].at.begin, count = chunks[i].at.size();
    const AdamWScalars& s = scalars[chunks[i].index];
    float *const avg = exp_avg + at, *const avg_sq = exp_avg_sq + at;
    const float* const grad = grads + at;
    if (is_split) {
      const auto [weight, low] = halves_at(state.weight, state.low, at);
      dispatched([=, weight = weight, low = low] {
        split_adamw_loop(weight, low, avg, avg_sq, grad, count, s);
      });
      return;
    }
    float* const own = master + at;
    dispatched([=] { adamw_loop(own, avg, avg_sq, grad, count, s); });
    if (state.weight.defined()) round_into(state.weight, at, own, count);
  });
}

void split_master(const at::Tensor& master, const at::Tensor& weight, const at::Tensor& low) {
  const std::vector<Chunk> chunks = chunks_of({{0, master.numel()}});
  const float* const from = master.data_ptr<float>();
  for_each_chunk(chunks, [&](size_t i) {
    const int64_t at = chunks[i].at.begin, count = chunks[i].at.size();
    const auto [upper, lower] = halves_at(weight, low, at);
    dispatched([=, upper = upper, lower = lower] { split_loop(from + at, upper, lower, count); });
  });
}

at::Tensor join_master(const at::Tensor& weight, const at::Tensor& low) {
  at::Tensor master = at::empty(weight.sizes(), at::kFloat);
  const std::vector<Chunk> chunks = chunks_of({{0, weight.numel()}});
  float* const to = master.data_ptr<float>();
  for_each_chunk(chunks, [&](size_t i) {
    const int64_t at = chunks[i].at.begin, count = chunks[i].at.size();
    const auto [upper, lower] = halves_at(weight, low, at);
    dispatched([=, upper = upper, lower = lower] { join_loop(to + at, upper, lower, count); });
  });
  return master;
}

std::vector<double> sums_of_squares(const at::Tensor& values, const std::vector<Chunk>& chunks) {
  std::vector<double> sums(chunks.size());
  const float* const from = values.data_ptr<float>();
  for_each_chunk(chunks, [&](size_t i) {
    const float* part = from + chunks[i].at.begin;
    sums[i] = dispatched([=, count = chunks[i].at.size()] { return squares_loop(part, count); });
  });
  return sums;
}

void add_to(const at::Tensor& sum, const at::Tensor& x) {
  const bool is_half = x.scalar_type() == at::kBFloat16 || x.scalar_type() == at::kHalf;
  if (!is_half || sum.scalar_type() != at::kFloat || !x.is_contiguous() || !sum.is_contiguous())
    return composite_backend().add_to(sum, x);
  float* const to = sum.data_ptr<float>();
  const std::vector<Chunk> chunks = chunks_of({{0, x.numel()}});
  for_each_chunk(chunks, [&](size_t c) {
    add_half(to + chunks[c].at.begin, x, chunks[c].at.begin, chunks[c].at.size());
  });
}

bool all_finite(const at::Tensor& x) {
  if (!x.is_contiguous()) return composite_backend().all_finite(x);
  /// Elements looked at in one go.
  constexpr int64_t kPiece = int64_t{1} << 22;
  const DType dtype = device::dtype_of(x.scalar_type());
  std::atomic<bool> finite = true;
  device::parallel_for(0, x.numel(), kPiece, [&](int64_t begin, int64_t end) {
    const auto count = static_cast<size_t>(end - begin);
    if (first_non_finite(state_element(x, begin), dtype, count) < count) finite = false;
  });
  return finite;
}

}  // namespace danlu::ops::cpu
