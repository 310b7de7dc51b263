// Products of bf16 with the dot products of AVX512-BF16 and of Arm, for which Highway (1.0) has no
// target. Denormal numbers count as 0 with both.
#include <hwy/base.h>

#include <algorithm>

#include "ops/gemm_kernels_cpu.h"

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#if defined(__x86_64__) || defined(__aarch64__)

namespace danlu::ops::cpu {
#if defined(__x86_64__)
HWY_PUSH_ATTRIBUTES("avx,avx2,fma,bmi,bmi2,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")
#else
HWY_PUSH_ATTRIBUTES("arch=armv8.2-a+bf16")
#endif
namespace {

#if defined(__x86_64__)

constexpr size_t kLanes = 16;
using Floats = __m512;
using Pairs = __m512bh;

inline Floats zero() { return _mm512_setzero_ps(); }
inline Floats sums_at(const float* from) { return _mm512_loadu_ps(from); }
inline void store_sums(float* to, Floats value) { _mm512_storeu_ps(to, value); }
inline Floats plus(Floats a, Floats b) { return _mm512_add_ps(a, b); }
inline Pairs pairs_at(const char* at) { return reinterpret_cast<Pairs>(_mm512_loadu_si512(at)); }
inline Pairs spread_pair(const char* at) {
  int value;
  __builtin_memcpy(&value, at, sizeof value);
  return reinterpret_cast<Pairs>(_mm512_set1_epi32(value));
}
inline Floats dots(Floats sums, Pairs a, Pairs b) { return _mm512_dpbf16_ps(sums, a, b); }

#else

constexpr size_t kLanes = 4;
using Floats = float32x4_t;
using Pairs = bfloat16x8_t;

inline Floats zero() { return vdupq_n_f32(0); }
inline Floats sums_at(const float* from) { return vld1q_f32(from); }
inline void store_sums(float* to, Floats value) { vst1q_f32(to, value); }
inline Floats plus(Floats a, Floats b) { return vaddq_f32(a, b); }
inline Pairs pairs_at(const char* at) {
  return vreinterpretq_bf16_u8(vld1q_u8(reinterpret_cast<const uint8_t*>(at)));
}
inline Pairs spread_pair(const char* at) {
  uint32_t value;
  __builtin_memcpy(&value, at, sizeof value);
  return vreinterpretq_bf16_u32(vdupq_n_u32(value));
}
inline Floats dots(Floats sums, Pairs a, Pairs b) { return vbfdotq_f32(sums, a, b); }

#endif

constexpr size_t kVectors = 4;
/// 6 x 4 sums, 4 vectors of the panel and a broadcast word: 29 of the 32 registers of either.
constexpr size_t kRows = 6;

/// Asks for what is read next, spread evenly over a tile's steps. Requests need not stand a line
/// apart: lines between two of them are left to the processor.
struct Bf16Ahead {
  const char* line;
  size_t bytes;  ///< from one request to the next
};
constexpr size_t kStepsARequest = 2;

template <size_t kTileRows, size_t kUsed, bool kAsks>
void multiply_rows(const TileProduct& p, const char* left, float* c, Bf16Ahead& ahead) {
  Floats sums[kTileRows][kUsed];
#pragma GCC unroll 12
  for (size_t r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 4
    for (size_t v = 0; v < kUsed; ++v) sums[r][v] = zero();
  }
  const char* panel = static_cast<const char*>(p.panel);
  for (size_t step = 0; step < p.steps; ++step) {
    if constexpr (kAsks) {
      if (step % kStepsARequest == 0) {
        __builtin_prefetch(ahead.line, /*rw=*/0, /*second cache*/ 2);
        ahead.line += ahead.bytes;
      }
    }
    Pairs right[kUsed];
#pragma GCC unroll 4
    for (size_t v = 0; v < kUsed; ++v) right[v] = pairs_at(panel + v * sizeof(Pairs));
#pragma GCC unroll 12
    for (size_t r = 0; r < kTileRows; ++r) {
      const Pairs pair = spread_pair(left + r * p.left_row);
#pragma GCC unroll 4
      for (size_t v = 0; v < kUsed; ++v) sums[r][v] = dots(sums[r][v], pair, right[v]);
    }
    panel += kVectors * sizeof(Pairs);
    left += p.left_step;
  }
#pragma GCC unroll 12
  for (size_t r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 4
    for (size_t v = 0; v < kUsed; ++v) {
      float* to = c + r * p.c_row + v * kLanes;
      store_sums(to, p.add ? plus(sums_at(to), sums[r][v]) : sums[r][v]);
    }
  }
}

template <size_t kUsed, bool kAsks>
void multiply_all_rows(const TileProduct& p) {
  const char* left = static_cast<const char*>(p.left);
  float* c = p.c;
  size_t rows = p.rows;
  const size_t requests = (rows + kRows - 1) / kRows * ((p.steps + 1) / kStepsARequest);
  Bf16Ahead ahead{static_cast<const char*>(p.next), p.next_bytes / std::max<size_t>(1, requests)};
  const auto next = [&]<size_t kCount>() {
    multiply_rows<kCount, kUsed, kAsks>(p, left, c, ahead);
    left += kCount * p.left_row;
    c += kCount * p.c_row;
    rows -= kCount;
  };
  // With few vectors more rows are taken at once, or each sum would wait for its last addition.
  if constexpr (kUsed < kVectors)
    while (rows >= 2 * kRows) next.template operator()<2 * kRows>();
  while (rows >= kRows) next.template operator()<kRows>();
  switch (rows) {
    case 1:
      return next.template operator()<1>();
    case 2:
      return next.template operator()<2>();
    case 3:
      return next.template operator()<3>();
    case 4:
      return next.template operator()<4>();
    case 5:
      return next.template operator()<5>();
    default:
      return;
  }
}

}  // namespace

size_t bf16_panel_columns() { return kVectors * kLanes; }

void multiply_bf16_tile(const TileProduct& p) {
  const size_t vectors = p.columns == 0 ? kVectors : (p.columns + kLanes - 1) / kLanes;
  if (vectors == 1) return multiply_all_rows<1, false>(p);
  if (vectors == 2) return multiply_all_rows<2, false>(p);
  p.next ? multiply_all_rows<kVectors, true>(p) : multiply_all_rows<kVectors, false>(p);
}

HWY_POP_ATTRIBUTES
}  // namespace danlu::ops::cpu
#else

#include "base/error.h"

namespace danlu::ops::cpu {
size_t bf16_panel_columns() { return 0; }
void multiply_bf16_tile(const TileProduct&) { throw InternalError("[gemm] no bf16 tiles here"); }
}  // namespace danlu::ops::cpu
#endif
