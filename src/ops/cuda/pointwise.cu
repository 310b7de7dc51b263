// Numbers that depend on their own place alone: rotary embedding, SwiGLU, dropout.
#include "ops/cuda/launch.cuh"

namespace danlu::ops::cuda {
namespace {

dim3 grid_for(int64_t count) { return dim3(static_cast<unsigned>(blocks_for(count, kThreads))); }

__device__ int64_t index_of_thread() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}

/// A thread for each pair.
template <typename T>
__global__ void rotary_pairs(const T* x, const float* cos, const float* sin, RotaryShape shape,
                             float sign, T* y) {
  const int64_t index = index_of_thread();
  if (index >= shape.tokens * shape.heads * shape.half) return;
  const int64_t place = index % shape.half, row = index / shape.half, head = row % shape.heads,
                token = row / shape.heads;
  const T* from = x + token * shape.token_stride + head * shape.head_stride + place;
  T* to = y + row * 2 * shape.half + place;
  const float a = wide(from[0]), b = wide(from[shape.half]);
  const float c = cos[token * shape.half + place], s = sign * sin[token * shape.half + place];
  to[0] = rounded<T>(a * c - b * s);
  to[shape.half] = rounded<T>(b * c + a * s);
}

__device__ float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

template <typename T, int V>
__global__ void swiglu_numbers(const T* gate, const T* up, int64_t count, T* y) {
  const int64_t at = index_of_thread() * V;
  if (at >= count) return;
  const Pack<T, V> gates = pack_at<V>(gate + at), ups = pack_at<V>(up + at);
  Pack<T, V> result;
  for (int i = 0; i < V; ++i) {
    const float g = wide(gates.at[i]);
    result.at[i] = rounded<T>(wide(rounded<T>(g * sigmoid(g))) * wide(ups.at[i]));
  }
  put_pack<V>(y + at, result);
}

template <typename T, int V>
__global__ void swiglu_backward_numbers(const T* gate, const T* up, const T* dy, int64_t count,
                                        T* d_gate, T* d_up) {
  const int64_t at = index_of_thread() * V;
  if (at >= count) return;
  const Pack<T, V> gates = pack_at<V>(gate + at), ups = pack_at<V>(up + at),
                   grads = pack_at<V>(dy + at);
  Pack<T, V> of_gate, of_up;
  for (int i = 0; i < V; ++i) {
    const float g = wide(gates.at[i]), d = wide(grads.at[i]), s = sigmoid(g);
    of_gate.at[i] = rounded<T>(d * wide(ups.at[i]) * s * (1.0f + g * (1.0f - s)));
    of_up.at[i] = rounded<T>(d * g * s);
  }
  put_pack<V>(d_gate + at, of_gate);
  put_pack<V>(d_up + at, of_up);
}

/// base/rng.h's mix64.
__device__ uint64_t mixed(uint64_t seed, uint64_t index) {
  uint64_t z = seed + (index + 1) * 0x9e3779b97f4a7c15ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

template <typename T>
__global__ void dropout_numbers(const T* x, const int64_t* keys, uint64_t salt, uint64_t threshold,
                                float factor, int64_t rows, int64_t columns, int64_t first_column,
                                T* y) {
  const int64_t index = index_of_thread();
  if (index >= rows * columns) return;
  const uint64_t column = static_cast<uint64_t>(first_column + index % columns);
  const uint64_t row = mixed(static_cast<uint64_t>(keys[index / columns]), salt);
  const uint64_t pair = mixed(row, column / 2);
  const uint64_t draw = column % 2 == 0 ? pair & 0xffffffffull : pair >> 32;
  y[index] = rounded<T>(wide(x[index]) * (draw >= threshold ? factor : 0.0f));
}

}  // namespace

void rotary(Type type, const void* x, const float* cos, const float* sin, const RotaryShape& shape,
            bool inverse, void* y, Stream stream) {
  by_type(type, [&](auto number) {
    using T = decltype(number);
    launch("rotary", &rotary_pairs<T>, grid_for(shape.tokens * shape.heads * shape.half),
           dim3(kThreads), 0, stream, static_cast<const T*>(x), cos, sin, shape,
           inverse ? -1.0f : 1.0f, static_cast<T*>(y));
  });
}

void swiglu(Type type, const void* gate, const void* up, int64_t count, void* y, Stream stream) {
  by_type(type, [&](auto number) {
    using T = decltype(number);
    const auto start = [&](auto kernel, int packed) {
      launch("swiglu", kernel, grid_for(count / packed), dim3(kThreads), 0, stream,
             static_cast<const T*>(gate), static_cast<const T*>(up), count, static_cast<T*>(y));
    };
    are_packs<T>(count, gate, up, y) ? start(&swiglu_numbers<T, kWhole<T>>, kWhole<T>)
                                     : start(&swiglu_numbers<T, 1>, 1);
  });
}

void swiglu_backward(Type type, const void* gate, const void* up, const void* dy, int64_t count,
                     void* d_gate, void* d_up, Stream stream) {
  by_type(type, [&](auto number) {
    using T = decltype(number);
    const auto start = [&](auto kernel, int packed) {
      launch("swiglu_backward", kernel, grid_for(count / packed), dim3(kThreads), 0, stream,
             static_cast<const T*>(gate), static_cast<const T*>(up), static_cast<const T*>(dy),
             count, static_cast<T*>(d_gate), static_cast<T*>(d_up));
    };
    are_packs<T>(count, gate, up, dy, d_gate, d_up)
        ? start(&swiglu_backward_numbers<T, kWhole<T>>, kWhole<T>)
        : start(&swiglu_backward_numbers<T, 1>, 1);
  });
}

void dropout(Type type, const void* x, const int64_t* keys, uint64_t salt, uint64_t threshold,
             float factor, int64_t rows, int64_t columns, int64_t first_column, void* y,
             Stream stream) {
  by_type(type, [&](auto number) {
    using T = decltype(number);
    launch("dropout", &dropout_numbers<T>, grid_for(rows * columns), dim3(kThreads), 0, stream,
           static_cast<const T*>(x), keys, salt, threshold, factor, rows, columns, first_column,
           static_cast<T*>(y));
  });
}

}  // namespace danlu::ops::cuda
