// Products of bf16 with AVX512-BF16. Highway (1.0) has no target with these instructions.
#include "ops/gemm_kernels_cpu.h"

#if defined(__x86_64__)
#include <hwy/base.h>
#include <immintrin.h>

namespace danlu::ops::cpu::x86 {
HWY_PUSH_ATTRIBUTES("avx,avx2,fma,bmi,bmi2,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")
namespace {

constexpr size_t kLanes = 16, kVectors = 4;
/// 6 x 4 sums, 4 vectors of the panel and a broadcast word: 29 of the 32 registers.
constexpr size_t kRows = 6;

inline __m512bh as_pairs(__m512i words) { return reinterpret_cast<__m512bh>(words); }

inline __m512i word(const char* at) {
  int value;
  __builtin_memcpy(&value, at, sizeof value);
  return _mm512_set1_epi32(value);
}

template <size_t kTileRows, size_t kUsed>
void multiply_rows(const TileProduct& p, const char* left, float* c) {
  __m512 sums[kTileRows][kUsed];
#pragma GCC unroll 12
  for (size_t r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 4
    for (size_t v = 0; v < kUsed; ++v) sums[r][v] = _mm512_setzero_ps();
  }
  const char* panel = static_cast<const char*>(p.panel);
  for (size_t step = 0; step < p.steps; ++step) {
    __m512bh right[kUsed];
#pragma GCC unroll 4
    for (size_t v = 0; v < kUsed; ++v)
      right[v] = as_pairs(_mm512_loadu_si512(panel + v * sizeof(__m512i)));
#pragma GCC unroll 12
    for (size_t r = 0; r < kTileRows; ++r) {
      const __m512bh pair = as_pairs(word(left + r * p.left_row));
#pragma GCC unroll 4
      for (size_t v = 0; v < kUsed; ++v) sums[r][v] = _mm512_dpbf16_ps(sums[r][v], pair, right[v]);
    }
    panel += kVectors * sizeof(__m512i);
    left += p.left_step;
  }
#pragma GCC unroll 12
  for (size_t r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 4
    for (size_t v = 0; v < kUsed; ++v) {
      float* to = c + r * p.c_row + v * kLanes;
      _mm512_storeu_ps(to, p.add ? _mm512_add_ps(_mm512_loadu_ps(to), sums[r][v]) : sums[r][v]);
    }
  }
}

template <size_t kUsed>
void multiply_all_rows(const TileProduct& p) {
  const char* left = static_cast<const char*>(p.left);
  float* c = p.c;
  size_t rows = p.rows;
  const auto next = [&]<size_t kCount>() {
    multiply_rows<kCount, kUsed>(p, left, c);
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

void multiply_bf16_tile(const TileProduct& p) {
  const size_t vectors = p.columns == 0 ? kVectors : (p.columns + kLanes - 1) / kLanes;
  if (vectors == 1) return multiply_all_rows<1>(p);
  if (vectors == 2) return multiply_all_rows<2>(p);
  multiply_all_rows<kVectors>(p);
}

HWY_POP_ATTRIBUTES
}  // namespace danlu::ops::cpu::x86
#else

#include "base/error.h"

namespace danlu::ops::cpu::x86 {
void multiply_bf16_tile(const TileProduct&) { throw InternalError("[gemm] no bf16 tiles here"); }
}  // namespace danlu::ops::cpu::x86
#endif
