// AdamW, and masters of which a weight is the upper half: a thread for each element.
#include "ops/cuda/launch.cuh"

namespace danlu::ops::cuda {
namespace {

struct Halves {
  uint16_t weight;
  int16_t low;
};

/// ops/optimizer.h's split_master.
__device__ Halves halves_of(float master) {
  uint32_t bits = __float_as_uint(master);
  if ((bits & 0x7fffffffu) > 0x7f800000u) bits = (bits | 0x400000u) & 0xffff0000u;
  const auto low = static_cast<int16_t>(bits & 0xffffu);
  return {static_cast<uint16_t>((bits - static_cast<uint32_t>(static_cast<int32_t>(low))) >> 16),
          low};
}
__device__ float master_of(Halves halves) {
  return __uint_as_float((static_cast<uint32_t>(halves.weight) << 16) +
                         static_cast<uint32_t>(static_cast<int32_t>(halves.low)));
}

__device__ void put_weight(float* weight, float master) { *weight = master; }
__device__ void put_weight(F16* weight, float master) { *weight = rounded<F16>(master); }
__device__ void put_weight(BF16* weight, float master) { weight->bits = halves_of(master).weight; }

template <typename T>
__global__ void adamw_elements(AdamWTensors tensors, AdamW s, int64_t begin, int64_t end) {
  const int64_t i = begin + static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= end) return;
  T* const weight = static_cast<T*>(tensors.weight);
  uint16_t* const upper = static_cast<uint16_t*>(tensors.weight);
  const float grad = tensors.grad[i] * s.grad_scale;
  const float exp_avg = tensors.exp_avg[i] * s.beta1 + grad * s.one_minus_beta1;
  const float exp_avg_sq = tensors.exp_avg_sq[i] * s.beta2 + grad * grad * s.one_minus_beta2;
  float master = tensors.master ? tensors.master[i] : master_of({upper[i], tensors.low[i]});
  master = master * s.keep - s.step_size * exp_avg / (sqrtf(exp_avg_sq) * s.inv_sqrt_bias2 + s.eps);
  tensors.exp_avg[i] = exp_avg;
  tensors.exp_avg_sq[i] = exp_avg_sq;
  if (tensors.low) {
    const Halves halves = halves_of(master);
    upper[i] = halves.weight;
    tensors.low[i] = halves.low;
    return;
  }
  tensors.master[i] = master;
  if (weight) put_weight(weight + i, master);
}

__global__ void split_elements(const float* master, uint16_t* weight, int16_t* low, int64_t count) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const Halves halves = halves_of(master[i]);
  weight[i] = halves.weight;
  low[i] = halves.low;
}

__global__ void join_elements(const uint16_t* weight, const int16_t* low, float* master,
                              int64_t count) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) master[i] = master_of({weight[i], low[i]});
}

dim3 grid_of(int64_t count) { return dim3(static_cast<unsigned>(blocks_for(count, kThreads))); }

}  // namespace

void adamw(Type weight_type, const AdamWTensors& tensors, const AdamW& scalars, int64_t begin,
           int64_t end, Stream stream) {
  by_type(weight_type, [&](auto number) {
    launch("adamw", &adamw_elements<decltype(number)>, grid_of(end - begin), dim3(kThreads), 0,
           stream, tensors, scalars, begin, end);
  });
}

void split_master(const float* master, uint16_t* weight, int16_t* low, int64_t count,
                  Stream stream) {
  launch("split_master", &split_elements, grid_of(count), dim3(kThreads), 0, stream, master, weight,
         low, count);
}

void join_master(const uint16_t* weight, const int16_t* low, float* master, int64_t count,
                 Stream stream) {
  launch("join_master", &join_elements, grid_of(count), dim3(kThreads), 0, stream, weight, low,
         master, count);
}

}  // namespace danlu::ops::cuda
