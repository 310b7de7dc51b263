// RMSNorm: a block for each row; the weight's gradient by strips of rows.
#include <algorithm>

#include "ops/cuda/launch.cuh"

namespace danlu::ops::cuda {
namespace {

template <typename T, int V>
__global__ void rms_norm_rows(const T* x, const T* weight, float eps, int64_t dim, T* y,
                              float* rstd) {
  __shared__ float memory[kLanes];
  x += blockIdx.x * dim;
  y += blockIdx.x * dim;
  float squares = 0;
  for (int64_t i = threadIdx.x * V; i < dim; i += blockDim.x * V) {
    const Pack<T, V> here = pack_at<V>(x + i);
    for (int j = 0; j < V; ++j) squares += wide(here.at[j]) * wide(here.at[j]);
  }
  const float factor = rsqrtf(block_sum(squares, memory) / static_cast<float>(dim) + eps);
  if (threadIdx.x == 0) rstd[blockIdx.x] = factor;
  for (int64_t i = threadIdx.x * V; i < dim; i += blockDim.x * V) {
    const Pack<T, V> here = pack_at<V>(x + i), weights = pack_at<V>(weight + i);
    Pack<T, V> result;
    for (int j = 0; j < V; ++j) {
      const float unit = wide(rounded<T>(wide(here.at[j]) * factor));
      result.at[j] = rounded<T>(unit * wide(weights.at[j]));
    }
    put_pack<V>(y + i, result);
  }
}

template <typename T, int V>
__global__ void rms_norm_input_grad_rows(const T* x, const T* weight, const float* rstd,
                                         const T* dy, int64_t dim, T* dx) {
  __shared__ float memory[kLanes];
  const int64_t first = blockIdx.x * dim;
  const float factor = rstd[blockIdx.x];
  float along = 0;
  for (int64_t i = threadIdx.x * V; i < dim; i += blockDim.x * V) {
    const Pack<T, V> of_x = pack_at<V>(x + first + i), of_dy = pack_at<V>(dy + first + i),
                     weights = pack_at<V>(weight + i);
    for (int j = 0; j < V; ++j) along += wide(of_dy.at[j]) * wide(weights.at[j]) * wide(of_x.at[j]);
  }
  along = block_sum(along, memory) * factor * factor / static_cast<float>(dim);
  for (int64_t i = threadIdx.x * V; i < dim; i += blockDim.x * V) {
    const Pack<T, V> of_x = pack_at<V>(x + first + i), of_dy = pack_at<V>(dy + first + i),
                     weights = pack_at<V>(weight + i);
    Pack<T, V> result;
    for (int j = 0; j < V; ++j) {
      const float d_unit = wide(of_dy.at[j]) * wide(weights.at[j]);
      result.at[j] = rounded<T>(factor * (d_unit - wide(of_x.at[j]) * along));
    }
    put_pack<V>(dx + first + i, result);
  }
}

constexpr int kStripRows = 8;

/// A block: kLanes columns, and kStripRows rows at a time of those that are its part's.
template <typename T>
__global__ void rms_norm_weight_grad_columns(const T* x, const float* rstd, const T* dy,
                                             int64_t rows, int64_t dim, float* sums) {
  __shared__ float memory[kStripRows][kLanes];
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kLanes + threadIdx.x;
  float sum = 0;
  for (int64_t row = blockIdx.y * kStripRows + threadIdx.y; column < dim && row < rows;
       row += static_cast<int64_t>(gridDim.y) * kStripRows)
    sum += wide(dy[row * dim + column]) *
           wide(rounded<T>(wide(x[row * dim + column]) * rstd[row]));  // what the weight met
  memory[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y > 0 || column >= dim) return;
  for (int y = 1; y < kStripRows; ++y) sum += memory[y][threadIdx.x];
  sums[blockIdx.y * dim + column] = sum;
}

/// Threads for a row: whole warps.
dim3 threads_for(int64_t numbers) {
  const int64_t warps = std::clamp<int64_t>(blocks_for(numbers, kLanes), 1, kThreads / kLanes);
  return dim3(static_cast<unsigned>(warps * kLanes));
}

}  // namespace

void rms_norm(Type type, const void* x, const void* weight, float eps, int64_t rows, int64_t dim,
              void* y, float* rstd, Stream stream) {
  by_type(type, [&](auto number) {
    using T = decltype(number);
    const auto start = [&](auto kernel, int packed) {
      launch("rms_norm", kernel, dim3(static_cast<unsigned>(rows)), threads_for(dim / packed), 0,
             stream, static_cast<const T*>(x), static_cast<const T*>(weight), eps, dim,
             static_cast<T*>(y), rstd);
    };
    are_packs<T>(dim, x, weight, y) ? start(&rms_norm_rows<T, kWhole<T>>, kWhole<T>)
                                    : start(&rms_norm_rows<T, 1>, 1);
  });
}

void rms_norm_input_grad(Type type, const void* x, const void* weight, const float* rstd,
                         const void* dy, int64_t rows, int64_t dim, void* dx, Stream stream) {
  by_type(type, [&](auto number) {
    using T = decltype(number);
    const auto start = [&](auto kernel, int packed) {
      launch("rms_norm_input_grad", kernel, dim3(static_cast<unsigned>(rows)),
             threads_for(dim / packed), 0, stream, static_cast<const T*>(x),
             static_cast<const T*>(weight), rstd, static_cast<const T*>(dy), dim,
             static_cast<T*>(dx));
    };
    are_packs<T>(dim, x, weight, dy, dx) ? start(&rms_norm_input_grad_rows<T, kWhole<T>>, kWhole<T>)
                                         : start(&rms_norm_input_grad_rows<T, 1>, 1);
  });
}

int64_t weight_grad_parts(int64_t rows) {
  constexpr int64_t kPartRows = 64, kMostParts = 64;
  return std::clamp<int64_t>(blocks_for(rows, kPartRows), 1, kMostParts);
}

void rms_norm_weight_grad(Type type, const void* x, const float* rstd, const void* dy, int64_t rows,
                          int64_t dim, float* sums, Stream stream) {
  by_type(type, [&](auto number) {
    using T = decltype(number);
    const dim3 grid(static_cast<unsigned>(blocks_for(dim, kLanes)),
                    static_cast<unsigned>(weight_grad_parts(rows)));
    launch("rms_norm_weight_grad", &rms_norm_weight_grad_columns<T>, grid, dim3(kLanes, kStripRows),
           0, stream, static_cast<const T*>(x), rstd, static_cast<const T*>(dy), rows, dim, sums);
  });
}

}  // namespace danlu::ops::cuda
