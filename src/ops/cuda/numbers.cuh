// ops/cuda/numbers.cuh: numbers of 16 and 32 bits, and several of them at once.
#pragma once
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace danlu::ops::cuda {

struct BF16 {
  uint16_t bits;
};
struct F16 {
  uint16_t bits;
};

__device__ inline float wide(float x) { return x; }
__device__ inline float wide(BF16 x) {
  return __uint_as_float(static_cast<uint32_t>(x.bits) << 16);
}
__device__ inline float wide(F16 x) { return __half2float(__ushort_as_half(x.bits)); }

template <typename T>
__device__ inline T rounded(float x);
template <>
__device__ inline float rounded<float>(float x) {
  return x;
}
template <>
__device__ inline BF16 rounded<BF16>(float x) {
  const uint32_t bits = __float_as_uint(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>(bits >> 16 | 0x40u)};
  return {static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16)};
}
template <>
__device__ inline F16 rounded<F16>(float x) {
  return {__half_as_ushort(__float2half_rn(x))};
}

/// V numbers that are read and written together.
template <typename T, int V>
struct alignas(sizeof(T) * V) Pack {
  T at[V];
};
#ifdef __CUDACC__
template <typename Packed, typename T>
__device__ inline Packed* as_pack(T* x) {
  return reinterpret_cast<Packed*>(x);
}
#else  // a card faults at addresses that are not aligned, which tests are to see
template <typename Packed, typename T>
Packed* as_pack(T* x) {
  return emulated::aligned<Packed>(x);
}
#endif
template <int V, typename T>
__device__ inline Pack<T, V> pack_at(const T* x) {
  return *as_pack<const Pack<T, V>>(x);
}
template <int V, typename T>
__device__ inline void put_pack(T* x, const Pack<T, V>& pack) {
  *as_pack<Pack<T, V>>(x) = pack;
}

/// How many numbers of type T 16 bytes hold.
template <typename T>
constexpr int kWhole = 16 / sizeof(T);

/// Whether rows of `dim` at these addresses can be read 16 bytes at a time.
template <typename T, typename... Pointers>
bool are_packs(int64_t dim, const Pointers*... pointers) {
  return dim % kWhole<T> == 0 && ((reinterpret_cast<uintptr_t>(pointers) % 16 == 0) && ...);
}

}  // namespace danlu::ops::cuda
