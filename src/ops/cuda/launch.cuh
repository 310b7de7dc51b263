// ops/cuda/launch.cuh: how kernels of this folder are started, and what their threads share.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <stdexcept>
#include <string>

#include "ops/cuda/kernels.h"
#include "ops/cuda/numbers.cuh"

namespace danlu::ops::cuda {

constexpr int kThreads = 256, kLanes = 32;

// Memory of a block whose size its start says.
#ifdef __CUDACC__
#define DANLU_DYNAMIC_SHARED(type, name) extern __shared__ type name[]
#else
#define DANLU_DYNAMIC_SHARED(type, name) type* const name = emulated::dynamic_memory<type>()
#endif

inline int64_t blocks_for(int64_t count, int64_t of) { return (count + of - 1) / of; }

/// Nothing is started where there is nothing to do, which CUDA takes for an error.
template <typename... Parameters, typename... Arguments>
void launch(const char* name, void (*kernel)(Parameters...), dim3 grid, dim3 block,
            size_t shared_bytes, Stream stream, const Arguments&... arguments) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
#ifdef __CUDACC__
  kernel<<<grid, block, shared_bytes, stream>>>(static_cast<Parameters>(arguments)...);
  if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess)
    throw std::runtime_error(std::string(name) + ": " + cudaGetErrorString(error));
#else  // tests compile these files as C++ and run their threads on the host
  emulated::run(name, grid, block, shared_bytes,
                [&] { kernel(static_cast<Parameters>(arguments)...); });
#endif
}

/// Calls body(Number of the type), e.g. [&](auto n) { using T = decltype(n); … }.
template <typename Body>
void by_type(Type type, const Body& body) {
  if (type == Type::kF32) return body(float{});
  if (type == Type::kBF16) return body(BF16{});
  body(F16{});
}

__device__ inline float warp_sum(float x) {
  for (int offset = kLanes / 2; offset > 0; offset /= 2) x += __shfl_xor_sync(~0u, x, offset);
  return x;
}
__device__ inline float warp_max(float x) {
  for (int offset = kLanes / 2; offset > 0; offset /= 2)
    x = fmaxf(x, __shfl_xor_sync(~0u, x, offset));
  return x;
}

/// The sum over a block of whole warps, for all its threads. `memory`: kLanes floats that nobody
/// reads or writes beside it.
__device__ inline float block_sum(float x, float* memory) {
  const int lane = threadIdx.x % kLanes, warp = threadIdx.x / kLanes;
  x = warp_sum(x);
  __syncthreads();
  if (lane == 0) memory[warp] = x;
  __syncthreads();
  float sum = 0;
  for (unsigned w = 0; w < blockDim.x / kLanes; ++w) sum += memory[w];
  return sum;
}

}  // namespace danlu::ops::cuda
