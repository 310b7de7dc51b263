#include "ops/nf4_rows_cpu.h"

#include <algorithm>
#include <cstring>

#include "base/cpu_class.h"
#include "base/dtype.h"
#include "base/nf4.h"

#if defined(__x86_64__)
#include <hwy/base.h>
#include <immintrin.h>
#define DANLU_X86 1
#else
#define DANLU_X86 0
#endif
#if defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace danlu::ops::cpu {
namespace {

/// The 16 numbers of a block, as they are used.
struct Nf4Table {
  alignas(64) float numbers[16];
};

float rounded_to_bf16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  bits = (bits + 0x7fffu + ((bits >> 16) & 1u)) & 0xffff0000u;  // factors are finite
  std::memcpy(&value, &bits, sizeof bits);
  return value;
}

float rounded_to(Element type, float number) {
  if (type == Element::kF32) return number;
  return type == Element::kBF16 ? rounded_to_bf16(number) : f16_to_float(float_to_f16(number));
}

Nf4Table nf4_table(const Nf4Rounding& rounding, float factor) {
  Nf4Table table;
  for (size_t i = 0; i < 16; ++i) table.numbers[i] = kNf4Numbers[i] * factor;
  for (const Element type : {rounding.first, rounding.then}) {
    if (type == Element::kF32) continue;
    for (float& number : table.numbers) number = rounded_to(type, number);
    if (rounding.then == rounding.first) break;
  }
  return table;
}

/// 16 numbers at a time from whole bytes; `count` is a multiple of 16.
using DecodeNf4 = void (*)(const Nf4Table& table, const uint8_t* codes, int64_t count, float* to);

#if !defined(__aarch64__)
void decode_nf4_plain(const Nf4Table& table, const uint8_t* codes, int64_t count, float* to) {
  for (int64_t i = 0; i < count / 2; ++i) {
    to[2 * i] = table.numbers[codes[i] >> 4];
    to[2 * i + 1] = table.numbers[codes[i] & 15];
  }
}
#endif

#if DANLU_X86

HWY_PUSH_ATTRIBUTES("avx,avx2,fma")
/// The codes of 8 bytes, one to a byte, in their order.
inline __m128i nf4_codes_of(const uint8_t* codes) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes));
  const __m128i mask = _mm_set1_epi8(15);
  return _mm_unpacklo_epi8(_mm_and_si128(_mm_srli_epi16(bytes, 4), mask),
                           _mm_and_si128(bytes, mask));
}
void decode_nf4_avx2(const Nf4Table& table, const uint8_t* codes, int64_t count, float* to) {
  const __m256 low = _mm256_load_ps(table.numbers), high = _mm256_load_ps(table.numbers + 8);
  const auto eight = [&](__m128i of, float* out) {
    const __m256i index = _mm256_cvtepu8_epi32(of);
    // Bit 3 as the sign, by which is chosen.
    const __m256 upper = _mm256_castsi256_ps(_mm256_slli_epi32(index, 28));
    _mm256_storeu_ps(out, _mm256_blendv_ps(_mm256_permutevar8x32_ps(low, index),
                                           _mm256_permutevar8x32_ps(high, index), upper));
  };
  for (int64_t i = 0; i < count; i += 16) {
    const __m128i all = nf4_codes_of(codes + i / 2);
    eight(all, to + i);
    eight(_mm_srli_si128(all, 8), to + i + 8);
  }
}
HWY_POP_ATTRIBUTES

HWY_PUSH_ATTRIBUTES("avx,avx2,fma,avx512f,avx512bw,avx512dq,avx512vl")
void decode_nf4_avx512(const Nf4Table& table, const uint8_t* codes, int64_t count, float* to) {
  const __m512 numbers = _mm512_load_ps(table.numbers);
  const __m128i mask = _mm_set1_epi8(15);
  for (int64_t i = 0; i < count; i += 16) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes + i / 2));
    const __m128i all = _mm_unpacklo_epi8(_mm_and_si128(_mm_srli_epi16(bytes, 4), mask),
                                          _mm_and_si128(bytes, mask));
    _mm512_storeu_ps(to + i, _mm512_permutexvar_ps(_mm512_cvtepu8_epi32(all), numbers));
  }
}
HWY_POP_ATTRIBUTES

#endif

#if defined(__aarch64__)

/// A byte of each of the 16 numbers is a table; of four tables the bytes lie side by side again.
void decode_nf4_neon(const Nf4Table& table, const uint8_t* codes, int64_t count, float* to) {
  const uint8x16x4_t bytes_of = vld4q_u8(reinterpret_cast<const uint8_t*>(table.numbers));
  for (int64_t i = 0; i < count; i += 16) {
    const uint8x8_t pairs = vld1_u8(codes + i / 2);
    const uint8x8_t first = vshr_n_u8(pairs, 4), second = vand_u8(pairs, vdup_n_u8(15));
    const uint8x16_t all = vcombine_u8(vzip1_u8(first, second), vzip2_u8(first, second));
    uint8x16x4_t numbers;
    for (int b = 0; b < 4; ++b) numbers.val[b] = vqtbl1q_u8(bytes_of.val[b], all);
    vst4q_u8(reinterpret_cast<uint8_t*>(to + i), numbers);
  }
}

#endif

DecodeNf4 find_decode_nf4() {
#if defined(__aarch64__)
  return &decode_nf4_neon;
#endif
#if DANLU_X86
  if (cpu_class() >= CpuClass::kAvx512) return &decode_nf4_avx512;
  if (cpu_class() >= CpuClass::kAvx2) return &decode_nf4_avx2;
#endif
#if !defined(__aarch64__)
  return &decode_nf4_plain;
#endif
}

}  // namespace

void decode_nf4(const Nf4Rounding& rounding, const uint8_t* codes, int64_t first, int64_t count,
                float factor, float* to) {
  static const DecodeNf4 decode = find_decode_nf4();
  const Nf4Table table = nf4_table(rounding, factor);
  int64_t done = 0;
  if (first % 2 != 0 && count > 0) to[done++] = table.numbers[nf4_code(codes, first)];
  const int64_t whole = (count - done) / 16 * 16;
  decode(table, codes + (first + done) / 2, whole, to + done);
  for (done += whole; done < count; ++done) to[done] = table.numbers[nf4_code(codes, first + done)];
}

}  // namespace danlu::ops::cpu
