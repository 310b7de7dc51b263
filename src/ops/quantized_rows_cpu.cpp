#include "ops/quantized_rows_cpu.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/cpu_class.h"
#include "base/dtype.h"
#include "ops/prefetch_cpu.h"

#if defined(__x86_64__)
#include <hwy/base.h>
#include <immintrin.h>
#define DANLU_X86 1
#else
#define DANLU_X86 0
#endif
#if defined(__aarch64__)
#include <hwy/base.h>

#include "ops/quantized_rows_neon.h"
#endif

#define DANLU_ALWAYS_INLINE inline __attribute__((always_inline))

namespace danlu::ops::cpu {
#if !defined(__aarch64__)
namespace plain {

struct Vectors {
  static constexpr int kRows = 2, kZero8 = 0, kUpperFactor = 1;
  struct Ints {
    int32_t v[16];
  };
  struct Floats {
    float v[16];
  };
  struct Bytes {
    uint8_t v[64];
  };
  template <typename Lanes, typename Body>
  static Lanes each(const Body& body) {
    Lanes result;
    for (size_t i = 0; i < sizeof(result.v) / sizeof(result.v[0]); ++i) result.v[i] = body(i);
    return result;
  }
  static Bytes load(const uint8_t* p) {
    Bytes b;
    std::memcpy(b.v, p, sizeof b.v);
    return b;
  }
  static Bytes low(const Bytes& b) {
    return each<Bytes>([&](size_t i) { return static_cast<uint8_t>(b.v[i] & 15); });
  }
  static Bytes high(const Bytes& b) {
    return each<Bytes>([&](size_t i) { return static_cast<uint8_t>(b.v[i] >> 4); });
  }
  static Bytes upper(const Bytes& b) { return high(b); }
  static Ints joined(const Ints& a, const Ints& b) {
    return each<Ints>([&](size_t i) { return a.v[i] + b.v[i]; });
  }
  template <int kShift>
  static Bytes with_high(const Bytes& nibbles, const Bytes& b) {
    return each<Bytes>([&](size_t i) {
      return static_cast<uint8_t>(nibbles.v[i] | (((b.v[i] >> kShift) & 3) << 4));
    });
  }
  static Bytes signed_codes(const Bytes& b) {
    return each<Bytes>([&](size_t i) { return static_cast<uint8_t>(b.v[i] ^ 0x80); });
  }
  static Ints dot4(const Ints& sum, const Bytes& b, const int8_t* x) {
    return each<Ints>([&](size_t i) {
      const uint8_t* c = b.v + 4 * i;
      return sum.v[i] + c[0] * x[0] + c[1] * x[1] + c[2] * x[2] + c[3] * x[3];
    });
  }
  static Ints dot8(const Ints& sum, const Bytes& b, const int8_t* x) {
    return each<Ints>([&](size_t i) {
      const auto c = [&](size_t j) { return static_cast<int8_t>(b.v[4 * i + j]); };
      return sum.v[i] + c(0) * x[0] + c(1) * x[1] + c(2) * x[2] + c(3) * x[3];
    });
  }
  static Ints ints(int32_t value) {
    return each<Ints>([&](size_t) { return value; });
  }
  static Floats floats(float value) {
    return each<Floats>([&](size_t) { return value; });
  }
  static Floats zero() { return floats(0); }
  static Floats to_floats(const Ints& x) {
    return each<Floats>([&](size_t i) { return static_cast<float>(x.v[i]); });
  }
  static Floats mul(const Floats& a, const Floats& b) {
    return each<Floats>([&](size_t i) { return a.v[i] * b.v[i]; });
  }
  static Floats add(const Floats& a, const Floats& b, const Floats& c) {
    return each<Floats>([&](size_t i) { return a.v[i] * b.v[i] + c.v[i]; });
  }
  static Floats subtract(const Floats& a, const Floats& b, const Floats& c) {
    return each<Floats>([&](size_t i) { return c.v[i] - a.v[i] * b.v[i]; });
  }
  static Floats halves(const uint8_t* p) {
    return each<Floats>([&](size_t i) {
      uint16_t bits;
      std::memcpy(&bits, p + 2 * i, sizeof bits);
      return f16_to_float(bits);
    });
  }
  static Floats unsigned16(const uint8_t* p) {
    return each<Floats>([&](size_t i) { return static_cast<float>(p[i]); });
  }
  static Floats signed16(const uint8_t* p) {
    return each<Floats>([&](size_t i) { return static_cast<float>(static_cast<int8_t>(p[i])); });
  }
  static void store(const Floats& x, float* p) { std::memcpy(p, x.v, sizeof x.v); }
};

#include "ops/quantized_rows_inl.h"

}  // namespace plain
#endif

#if DANLU_X86

namespace avx2 {
HWY_PUSH_ATTRIBUTES("avx,avx2,fma,f16c,bmi,bmi2")

struct Vectors {
  static constexpr int kRows = 2, kZero8 = 0, kUpperFactor = 1;
  struct Ints {
    __m256i a, b;
  };
  struct Floats {
    __m256 a, b;
  };
  using Bytes = Ints;
  static Bytes load(const uint8_t* p) {
    return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
            _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 32))};
  }
  static __m256i masked(__m256i x, char mask) {
    return _mm256_and_si256(x, _mm256_set1_epi8(mask));
  }
  static Bytes low(const Bytes& x) { return {masked(x.a, 15), masked(x.b, 15)}; }
  static Bytes high(const Bytes& x) {
    return {masked(_mm256_srli_epi16(x.a, 4), 15), masked(_mm256_srli_epi16(x.b, 4), 15)};
  }
  static Bytes upper(const Bytes& x) { return high(x); }  // 16 times 15 overflows maddubs
  static Ints joined(const Ints& a, const Ints& b) {
    return {_mm256_add_epi32(a.a, b.a), _mm256_add_epi32(a.b, b.b)};
  }
  template <int kShift>
  static __m256i upper(__m256i x) {
    const __m256i moved =
        kShift < 4 ? _mm256_slli_epi16(x, 4 - kShift) : _mm256_srli_epi16(x, kShift - 4);
    return masked(moved, 0x30);
  }
  template <int kShift>
  static Bytes with_high(const Bytes& nibbles, const Bytes& x) {
    return {_mm256_or_si256(nibbles.a, upper<kShift>(x.a)),
            _mm256_or_si256(nibbles.b, upper<kShift>(x.b))};
  }
  static Bytes signed_codes(const Bytes& x) {
    const __m256i flip = _mm256_set1_epi8(static_cast<char>(0x80));
    return {_mm256_xor_si256(x.a, flip), _mm256_xor_si256(x.b, flip)};
  }
  static __m256i four(const int8_t* x) {
    int32_t bits;
    std::memcpy(&bits, x, sizeof bits);
    return _mm256_set1_epi32(bits);
  }
  static __m256i plus(__m256i sum, __m256i codes, __m256i x) {
    const __m256i pairs = _mm256_maddubs_epi16(codes, x);
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
  }
  static Ints dot4(const Ints& sum, const Bytes& codes, const int8_t* x) {
    const __m256i x4 = four(x);
    return {plus(sum.a, codes.a, x4), plus(sum.b, codes.b, x4)};
  }
  /// |w| times x with w's sign: 2 * 128 * 127 fits 16 bits, what unsigned codes up to 255 do not.
  static Ints dot8(const Ints& sum, const Bytes& w, const int8_t* x) {
    const __m256i x4 = four(x);
    return {plus(sum.a, _mm256_abs_epi8(w.a), _mm256_sign_epi8(x4, w.a)),
            plus(sum.b, _mm256_abs_epi8(w.b), _mm256_sign_epi8(x4, w.b))};
  }
  static Ints ints(int32_t value) { return {_mm256_set1_epi32(value), _mm256_set1_epi32(value)}; }
  static Floats floats(float value) { return {_mm256_set1_ps(value), _mm256_set1_ps(value)}; }
  static Floats zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  static Floats to_floats(const Ints& x) {
    return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)};
  }
  static Floats mul(const Floats& x, const Floats& y) {
    return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)};
  }
  static Floats add(const Floats& x, const Floats& y, const Floats& z) {
    return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
  }
  static Floats subtract(const Floats& x, const Floats& y, const Floats& z) {
    return {_mm256_fnmadd_ps(x.a, y.a, z.a), _mm256_fnmadd_ps(x.b, y.b, z.b)};
  }
  static __m128i sixteen(const uint8_t* p) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  }
  static Floats halves(const uint8_t* p) {
    return {_mm256_cvtph_ps(sixteen(p)), _mm256_cvtph_ps(sixteen(p + 16))};
  }
  static Floats unsigned16(const uint8_t* p) {
    const __m128i x = sixteen(p);
    return to_floats({_mm256_cvtepu8_epi32(x), _mm256_cvtepu8_epi32(_mm_srli_si128(x, 8))});
  }
  static Floats signed16(const uint8_t* p) {
    const __m128i x = sixteen(p);
    return to_floats({_mm256_cvtepi8_epi32(x), _mm256_cvtepi8_epi32(_mm_srli_si128(x, 8))});
  }
  static void store(const Floats& x, float* p) {
    _mm256_storeu_ps(p, x.a);
    _mm256_storeu_ps(p + 8, x.b);
  }
};

#include "ops/quantized_rows_inl.h"

HWY_POP_ATTRIBUTES
}  // namespace avx2

namespace vnni {
HWY_PUSH_ATTRIBUTES("avx,avx2,fma,f16c,bmi,bmi2,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")

struct Vectors {
  static constexpr int kRows = 8, kZero8 = 128, kUpperFactor = 16;
  using Ints = __m512i;
  using Floats = __m512;
  using Bytes = __m512i;
  static Bytes load(const uint8_t* p) { return _mm512_loadu_si512(p); }
  static Bytes masked(Bytes x, char mask) { return _mm512_and_si512(x, _mm512_set1_epi8(mask)); }
  static Bytes low(Bytes x) { return masked(x, 15); }
  static Bytes high(Bytes x) { return masked(_mm512_srli_epi16(x, 4), 15); }
  static Bytes upper(Bytes x) { return masked(x, static_cast<char>(0xF0)); }
  static Ints joined(Ints a, Ints b) { return _mm512_add_epi32(a, _mm512_srai_epi32(b, 4)); }
  template <int kShift>
  static Bytes with_high(Bytes nibbles, Bytes x) {
    const Bytes moved =
        kShift < 4 ? _mm512_slli_epi16(x, 4 - kShift) : _mm512_srli_epi16(x, kShift - 4);
    return _mm512_or_si512(nibbles, masked(moved, 0x30));
  }
  static Bytes signed_codes(Bytes x) { return x; }
  static Ints dot4(Ints sum, Bytes codes, const int8_t* x) {
    int32_t bits;
    std::memcpy(&bits, x, sizeof bits);
    return _mm512_dpbusd_epi32(sum, codes, _mm512_set1_epi32(bits));
  }
  static Ints dot8(Ints sum, Bytes codes, const int8_t* x) { return dot4(sum, codes, x); }
  static Ints ints(int32_t value) { return _mm512_set1_epi32(value); }
  static Floats floats(float value) { return _mm512_set1_ps(value); }
  static Floats zero() { return _mm512_setzero_ps(); }
  static Floats to_floats(Ints x) { return _mm512_cvtepi32_ps(x); }
  static Floats mul(Floats x, Floats y) { return _mm512_mul_ps(x, y); }
  static Floats add(Floats x, Floats y, Floats z) { return _mm512_fmadd_ps(x, y, z); }
  static Floats subtract(Floats x, Floats y, Floats z) { return _mm512_fnmadd_ps(x, y, z); }
  static Floats halves(const uint8_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static __m128i sixteen(const uint8_t* p) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  }
  static Floats unsigned16(const uint8_t* p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(sixteen(p)));
  }
  static Floats signed16(const uint8_t* p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(sixteen(p)));
  }
  static void store(Floats x, float* p) { _mm512_storeu_ps(p, x); }
};

#include "ops/quantized_rows_inl.h"

/// A group of 32 numbers; false if one is not finite.
bool quantize_group(const float* x, int8_t* codes, QuantizedInputBlock& facts) {
  const __m512 a = _mm512_loadu_ps(x), b = _mm512_loadu_ps(x + 16);
  const float largest = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(a), _mm512_abs_ps(b)));
  const __m512 zero = _mm512_setzero_ps();
  const __m512 nothing = _mm512_fmadd_ps(a, zero, _mm512_mul_ps(b, zero));  // NaN stays
  if (!std::isfinite(largest) || _mm512_cmp_ps_mask(nothing, nothing, _CMP_UNORD_Q)) return false;
  facts.scale = largest / 127.0f;
  const __m512 inverse = _mm512_set1_ps(facts.scale > 0x1p-120f ? 1.0f / facts.scale : 0.0f);
  const __m512i i = _mm512_cvtps_epi32(_mm512_mul_ps(a, inverse));
  const __m512i j = _mm512_cvtps_epi32(_mm512_mul_ps(b, inverse));
  facts.sum[0] = _mm512_reduce_add_epi32(i);
  facts.sum[1] = _mm512_reduce_add_epi32(j);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(codes), _mm512_cvtepi32_epi8(i));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(codes + 16), _mm512_cvtepi32_epi8(j));
  return true;
}

HWY_POP_ATTRIBUTES
}  // namespace vnni

#endif

#if defined(__aarch64__)

namespace neon {

/// 2 * 128 * 127 fits 16 bits.
struct Vectors : neon_vectors::Common {
  static int32x4_t plus(int32x4_t sum, uint8x16_t codes, int8x16_t x) {
    const int8x16_t w = vreinterpretq_s8_u8(codes);
    const int16x8_t low = vmull_s8(vget_low_s8(w), vget_low_s8(x)), high = vmull_high_s8(w, x);
    return vpadalq_s16(sum, vpaddq_s16(low, high));
  }
  static Ints dot4(const Ints& sum, const Bytes& codes, const int8_t* x) {
    const int8x16_t x4 = four(x);
    return each<Ints>([&](int i) { return plus(sum.v[i], codes.v[i], x4); });
  }
  static Ints dot8(const Ints& sum, const Bytes& w, const int8_t* x) { return dot4(sum, w, x); }
};

#include "ops/quantized_rows_inl.h"

}  // namespace neon

namespace neon_dots {
HWY_PUSH_ATTRIBUTES("arch=armv8.2-a+dotprod")

struct Vectors : neon_vectors::Common {
  static int32x4_t plus(int32x4_t sum, uint8x16_t codes, int8x16_t x) {
    return vdotq_s32(sum, vreinterpretq_s8_u8(codes), x);
  }
  static Ints dot4(const Ints& sum, const Bytes& codes, const int8_t* x) {
    const int8x16_t x4 = four(x);
    return {{plus(sum.v[0], codes.v[0], x4), plus(sum.v[1], codes.v[1], x4),
             plus(sum.v[2], codes.v[2], x4), plus(sum.v[3], codes.v[3], x4)}};
  }
  static Ints dot8(const Ints& sum, const Bytes& w, const int8_t* x) { return dot4(sum, w, x); }
};

#include "ops/quantized_rows_inl.h"

HWY_POP_ATTRIBUTES
}  // namespace neon_dots

#endif

namespace {

#if !defined(__aarch64__)

enum class InstructionSet { kPlain, kAvx2, kVnni };

InstructionSet find_instruction_set() {
#if DANLU_X86
  __builtin_cpu_init();
  if (cpu_class() >= CpuClass::kAvx512 && __builtin_cpu_supports("avx512vnni"))
    return InstructionSet::kVnni;
  if (cpu_class() >= CpuClass::kAvx2) return InstructionSet::kAvx2;
#endif
  return InstructionSet::kPlain;
}
InstructionSet instruction_set() {
  static const InstructionSet found = find_instruction_set();
  return found;
}

/// The rule of all of them.
bool quantize_group_plainly(const float* x, int8_t* codes, QuantizedInputBlock& facts) {
  float largest = 0;
  bool finite = true;
  for (size_t i = 0; i < kBlockGroup; ++i) {
    finite &= std::isfinite(x[i]);
    largest = std::max(largest, std::fabs(x[i]));
  }
  if (!finite) return false;
  facts.scale = largest / 127.0f;
  const float inverse = facts.scale > 0x1p-120f ? 1.0f / facts.scale : 0.0f;
  facts.sum[0] = facts.sum[1] = 0;
  for (size_t i = 0; i < kBlockGroup; ++i) {
    const float code = std::nearbyint(x[i] * inverse);
    codes[i] = static_cast<int8_t>(code);
    facts.sum[i / 16] += codes[i];
  }
  return true;
}

#endif

}  // namespace

void quantize_input(const float* x, size_t count, int8_t* codes, QuantizedInputBlock* facts) {
#if defined(__aarch64__)
  auto* group = &neon_vectors::quantize_group;
#else
  auto* group = &quantize_group_plainly;
#endif
#if DANLU_X86
  if (instruction_set() == InstructionSet::kVnni) group = &vnni::quantize_group;
#endif
  for (size_t i = 0; i < count / kBlockGroup; ++i) {
    if (group(x + i * kBlockGroup, codes + i * kBlockGroup, facts[i])) continue;
    facts[i] = {std::nanf(""), {0, 0}};
    std::memset(codes + i * kBlockGroup, 0, kBlockGroup);
  }
}

void multiply_band(BlockType type, const QuantizedBand& w, const QuantizedInput& x, size_t rows,
                   float* y, size_t y_row) {
#if defined(__aarch64__)
  return cpu_class() == CpuClass::kPlain ? neon::multiply_band(type, w, x, rows, y, y_row)
                                         : neon_dots::multiply_band(type, w, x, rows, y, y_row);
#else
#if DANLU_X86
  const InstructionSet found = instruction_set();
  if (found == InstructionSet::kVnni) return vnni::multiply_band(type, w, x, rows, y, y_row);
  if (found == InstructionSet::kAvx2) return avx2::multiply_band(type, w, x, rows, y, y_row);
#endif
  plain::multiply_band(type, w, x, rows, y, y_row);
#endif
}

}  // namespace danlu::ops::cpu
