// Cross entropy of rows of logits: a block for each row, which reads it once, and once more where
// its gradient is written.
#include "ops/cuda/launch.cuh"

namespace danlu::ops::cuda {
namespace {

/// The largest number, where it is first, and the sum of exp(number - largest).
struct RowState {
  float largest, sum;
  int64_t at;
};

constexpr float kNone = -INFINITY;

__device__ RowState empty_state() { return {kNone, 0.0f, INT64_MAX}; }

__device__ RowState joined(const RowState& a, const RowState& b) {
  const float largest = fmaxf(a.largest, b.largest);
  const int64_t at = a.largest > b.largest || (a.largest == b.largest && a.at < b.at) ? a.at : b.at;
  // Neither part has a largest number: they are empty, or hold only what is no number.
  if (largest == kNone) return {largest, a.sum + b.sum, at};
  return {largest, a.sum * expf(a.largest - largest) + b.sum * expf(b.largest - largest), at};
}

__device__ void add(RowState& state, float x, int64_t at) {
  if (x > state.largest) {
    state = {x, state.sum * expf(state.largest - x) + 1.0f, at};
  } else if (x != kNone) {
    state.sum += expf(x - state.largest);
  }
}

template <typename T>
__global__ void cross_entropy_rows(T* logits, const int64_t* targets, CrossEntropyRows rows,
                                   float* losses, int64_t* correct) {
  __shared__ RowState of_warps[kLanes];
  logits += blockIdx.x * rows.vocab;
  const int64_t target = targets[blockIdx.x];
  const float of_target = wide(logits[target]);
  RowState state = empty_state();
  for (int64_t i = threadIdx.x; i < rows.vocab; i += blockDim.x) add(state, wide(logits[i]), i);
  for (int offset = kLanes / 2; offset > 0; offset /= 2) {
    state = joined(
        state, {__shfl_xor_sync(~0u, state.largest, offset),
                __shfl_xor_sync(~0u, state.sum, offset), __shfl_xor_sync(~0u, state.at, offset)});
  }
  if (threadIdx.x % kLanes == 0) of_warps[threadIdx.x / kLanes] = state;
  __syncthreads();  // all have read the target's logit too
  state = of_warps[0];
  for (unsigned w = 1; w < blockDim.x / kLanes; ++w) state = joined(state, of_warps[w]);
  if (threadIdx.x == 0) {
    losses[blockIdx.x] =
        logf(state.sum) + state.largest - of_target + rows.z_weight * state.largest * state.largest;
    correct[blockIdx.x] = of_target >= state.largest;
  }
  if (!rows.make_grad) return;
  for (int64_t i = threadIdx.x; i < rows.vocab; i += blockDim.x) {
    float grad = expf(wide(logits[i]) - state.largest) / state.sum;
    if (i == target) grad -= 1.0f;
    if (i == state.at) grad += 2.0f * rows.z_weight * state.largest;
    logits[i] = rounded<T>(grad * rows.grad_scale);
  }
}

}  // namespace

void cross_entropy(Type type, void* logits, const int64_t* targets, const CrossEntropyRows& rows,
                   float* losses, int64_t* correct, Stream stream) {
  by_type(type, [&](auto number) {
    using T = decltype(number);
    constexpr unsigned kRowThreads = 512;  // vocabularies are long
    launch("cross_entropy", &cross_entropy_rows<T>, dim3(static_cast<unsigned>(rows.rows)),
           dim3(kRowThreads), 0, stream, static_cast<T*>(logits), targets, rows, losses, correct);
  });
}

}  // namespace danlu::ops::cuda
