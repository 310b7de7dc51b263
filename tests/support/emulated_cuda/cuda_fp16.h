// As CUDA's header of this name: numbers of 16 bits.
#pragma once
#include <c10/util/Half.h>

struct __half {
  uint16_t bits;
};
inline __half __ushort_as_half(uint16_t bits) { return {bits}; }
inline uint16_t __half_as_ushort(__half x) { return x.bits; }
inline float __half2float(__half x) { return c10::detail::fp16_ieee_to_fp32_value(x.bits); }
inline __half __float2half_rn(float x) { return {c10::detail::fp16_ieee_from_fp32_value(x)}; }
