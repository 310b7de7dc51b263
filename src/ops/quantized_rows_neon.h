// ops/quantized_rows_neon.h: what ops/quantized_rows_inl.h computes with on Arm, but for the
// products, which there are with and without the instruction for them. Internal to
// ops/quantized_rows_cpu.cpp.
#pragma once
#include <arm_neon.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "ops/quantized_rows_cpu.h"

namespace danlu::ops::cpu::neon_vectors {

struct Common {
  static constexpr int kRows = 4, kZero8 = 0, kUpperFactor = 1;
  struct Ints {
    int32x4_t v[4];
  };
  struct Floats {
    float32x4_t v[4];
  };
  struct Bytes {
    uint8x16_t v[4];
  };
  template <typename Vectors, typename Body>
  [[gnu::always_inline]] static Vectors each(const Body& body) {
    return {{body(0), body(1), body(2), body(3)}};
  }
  static Bytes load(const uint8_t* p) {
    return {{vld1q_u8(p), vld1q_u8(p + 16), vld1q_u8(p + 32), vld1q_u8(p + 48)}};
  }
  static Bytes low(const Bytes& x) {
    return each<Bytes>([&](int i) { return vandq_u8(x.v[i], vdupq_n_u8(15)); });
  }
  static Bytes high(const Bytes& x) {
    return each<Bytes>([&](int i) { return vshrq_n_u8(x.v[i], 4); });
  }
  static Bytes upper(const Bytes& x) { return high(x); }
  static Ints joined(const Ints& a, const Ints& b) {
    return each<Ints>([&](int i) { return vaddq_s32(a.v[i], b.v[i]); });
  }
  template <int kShift>
  static uint8x16_t upper(uint8x16_t x) {
    uint8x16_t moved = x;
    if constexpr (kShift < 4) moved = vshlq_n_u8(x, 4 - kShift);
    if constexpr (kShift > 4) moved = vshrq_n_u8(x, kShift - 4);
    return vandq_u8(moved, vdupq_n_u8(0x30));
  }
  template <int kShift>
  static Bytes with_high(const Bytes& nibbles, const Bytes& x) {
    return each<Bytes>([&](int i) { return vorrq_u8(nibbles.v[i], upper<kShift>(x.v[i])); });
  }
  static Bytes signed_codes(const Bytes& x) {
    return each<Bytes>([&](int i) { return veorq_u8(x.v[i], vdupq_n_u8(0x80)); });
  }
  /// Four bytes, four times.
  static int8x16_t four(const int8_t* x) {
    int32_t bits;
    std::memcpy(&bits, x, sizeof bits);
    return vreinterpretq_s8_s32(vdupq_n_s32(bits));
  }
  static Ints ints(int32_t value) {
    return each<Ints>([&](int) { return vdupq_n_s32(value); });
  }
  static Floats floats(float value) {
    return each<Floats>([&](int) { return vdupq_n_f32(value); });
  }
  static Floats zero() { return floats(0); }
  static Floats to_floats(const Ints& x) {
    return each<Floats>([&](int i) { return vcvtq_f32_s32(x.v[i]); });
  }
  static Floats mul(const Floats& x, const Floats& y) {
    return each<Floats>([&](int i) { return vmulq_f32(x.v[i], y.v[i]); });
  }
  static Floats add(const Floats& x, const Floats& y, const Floats& z) {
    return each<Floats>([&](int i) { return vfmaq_f32(z.v[i], x.v[i], y.v[i]); });
  }
  static Floats subtract(const Floats& x, const Floats& y, const Floats& z) {
    return each<Floats>([&](int i) { return vfmsq_f32(z.v[i], x.v[i], y.v[i]); });
  }
  static Floats halves(const uint8_t* p) {
    return each<Floats>(
        [&](int i) { return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p + 8 * i))); });
  }
  static Floats unsigned16(const uint8_t* p) {
    const uint8x16_t x = vld1q_u8(p);
    const uint16x8_t low = vmovl_u8(vget_low_u8(x)), high = vmovl_high_u8(x);
    return {{vcvtq_f32_u32(vmovl_u16(vget_low_u16(low))), vcvtq_f32_u32(vmovl_high_u16(low)),
             vcvtq_f32_u32(vmovl_u16(vget_low_u16(high))), vcvtq_f32_u32(vmovl_high_u16(high))}};
  }
  static Floats signed16(const uint8_t* p) {
    const int8x16_t x = vreinterpretq_s8_u8(vld1q_u8(p));
    const int16x8_t low = vmovl_s8(vget_low_s8(x)), high = vmovl_high_s8(x);
    return {{vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))), vcvtq_f32_s32(vmovl_high_s16(low)),
             vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))), vcvtq_f32_s32(vmovl_high_s16(high))}};
  }
  static void store(const Floats& x, float* p) {
    for (int i = 0; i < 4; ++i) vst1q_f32(p + 4 * i, x.v[i]);
  }
};

/// A group of 32 numbers; false if one is not finite.
inline bool quantize_group(const float* x, int8_t* codes, QuantizedInputBlock& facts) {
  float32x4_t largest = vdupq_n_f32(0);
  for (int i = 0; i < 8; ++i) largest = vmaxq_f32(largest, vabsq_f32(vld1q_f32(x + 4 * i)));
  const float most = vmaxvq_f32(largest);  // a NaN stays
  if (!std::isfinite(most)) return false;
  facts.scale = most / 127.0f;
  const float32x4_t inverse = vdupq_n_f32(facts.scale > 0x1p-120f ? 1.0f / facts.scale : 0.0f);
  for (int half = 0; half < 2; ++half) {
    int32x4_t four[4];
    for (int i = 0; i < 4; ++i)
      four[i] = vcvtnq_s32_f32(vmulq_f32(vld1q_f32(x + 16 * half + 4 * i), inverse));
    const int16x8_t low = vmovn_high_s32(vmovn_s32(four[0]), four[1]),
                    high = vmovn_high_s32(vmovn_s32(four[2]), four[3]);
    vst1q_s8(codes + 16 * half, vmovn_high_s16(vmovn_s16(low), high));
    facts.sum[half] =
        vaddvq_s32(vaddq_s32(vaddq_s32(four[0], four[1]), vaddq_s32(four[2], four[3])));
  }
  return true;
}

}  // namespace danlu::ops::cpu::neon_vectors
