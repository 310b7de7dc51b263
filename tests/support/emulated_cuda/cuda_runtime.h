// tests/support/emulated_cuda: kernels of src/ops/cuda as functions of the host. The threads of a
// block take turns on one thread, each until it waits for the others, in an order that chance
// gives: who does not wait for what another writes reads what was there before. A barrier that not
// all threads of a warp or a block come to is an error. Memory that a block shares is NaN at first
// where its size is given at the start. An address of several numbers that is not aligned for them
// is an error. What this cannot show: races that need two threads at once, and speed.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>

#define __global__
#define __device__
#define __host__
#define __shared__ static thread_local

struct dim3 {
  unsigned x, y, z;
  dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

namespace emulated {

struct Place {
  dim3 thread, block, threads, blocks;
};
/// The place of the thread whose turn it is.
Place& here();

/// Runs every thread of every block. Errors: std::logic_error naming the kernel.
void run(const char* name, dim3 grid, dim3 block, size_t shared_bytes,
         const std::function<void()>& kernel);

void* dynamic_bytes();
template <typename T>
T* dynamic_memory() {
  return static_cast<T*>(dynamic_bytes());
}

void wait_for_block();
/// The address, if it is a multiple of `bytes`; else another one, and the run is an error.
const void* aligned_address(const void* address, size_t bytes);
template <typename T>
T* aligned(const void* address) {
  return static_cast<T*>(const_cast<void*>(aligned_address(address, alignof(T))));
}
/// Gives 8 bytes to the lane whose number differs by `mask`, and takes its own.
uint64_t exchanged(uint64_t bits, int mask);

}  // namespace emulated

#define threadIdx (emulated::here().thread)
#define blockIdx (emulated::here().block)
#define blockDim (emulated::here().threads)
#define gridDim (emulated::here().blocks)

inline void __syncthreads() { emulated::wait_for_block(); }

template <typename T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  bits = emulated::exchanged(bits, mask);
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

inline float __uint_as_float(uint32_t bits) {
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}
inline uint32_t __float_as_uint(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
using std::min;
