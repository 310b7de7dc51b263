// Matrices in NF4: rows of them made dense, a thread for each number, and products of a few rows.
#include "ops/cuda/launch.cuh"

namespace danlu::ops::cuda {
namespace {

/// base/nf4.h's kNf4Group.
constexpr int64_t kGroupFactors = 256;

/// Tables where threads look up other numbers each, which parameters give one after the other.
struct SharedTables {
  float *numbers, *factors;
};
__device__ inline void read_tables(const Nf4Tables& tables, const SharedTables& shared) {
  for (int i = threadIdx.x; i < 256; i += blockDim.x) shared.factors[i] = tables.factors[i];
  if (threadIdx.x < 16) shared.numbers[threadIdx.x] = tables.numbers[threadIdx.x];
  __syncthreads();
}

/// The factor of block `block` of the whole, which is in slot `slot`.
__device__ inline float factor_of(const Nf4Rows& rows, const float* factors, int64_t slot,
                                  int64_t block) {
  // Not in one operation: a factor's bits are those of other devices.
  return rows.factors ? rows.factors[slot]
                      : __fadd_rn(__fmul_rn(factors[rows.factor_codes[slot]],
                                            rows.groups[block / kGroupFactors]),
                                  *rows.offset);
}

__device__ inline float factor_at(const Nf4Rows& rows, const float* factors, int64_t row,
                                  int64_t column) {
  const int64_t first = rows.first_number + row * rows.whole_columns;
  const int64_t block = (first + column) / rows.block;
  // In a part that is cut from each row, every row has slots of its own.
  const int64_t slot = rows.slots_of_row == 0
                           ? rows.first_slot + block - rows.first_number / rows.block
                           : rows.first_slot + row * rows.slots_of_row + block - first / rows.block;
  return factor_of(rows, factors, slot, block);
}

/// By way of the form's type.
template <typename T>
__device__ T number_of(const Nf4Rows& rows, float number) {
  if (rows.rounds_to_bf16) number = wide(rounded<BF16>(number));
  if (rows.rounds_to_f16) number = wide(rounded<F16>(number));
  return rounded<T>(number);
}

template <typename T>
__global__ void nf4_numbers(Nf4Rows rows, Nf4Tables tables, T* out) {
  __shared__ float numbers[16], factors[256];
  read_tables(tables, {numbers, factors});
  const int64_t index = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (index >= rows.rows * rows.columns) return;
  const int64_t code_index = rows.first_code + index;
  const unsigned byte = rows.codes[code_index / 2];
  const unsigned code = code_index % 2 == 0 ? byte >> 4 : byte & 15u;
  out[index] = number_of<T>(
      rows, numbers[code] * factor_at(rows, factors, index / rows.columns, index % rows.columns));
}

/// A warp for each row of the weight, 8 numbers for each of its lanes at a time. A block has
/// 2^block_bits numbers; `count` rows of x, at most R.
template <typename T, int R>
__global__ void nf4_multiply(Nf4Rows rows, int block_bits, Nf4Tables tables, const T* x, int count,
                             const T* bias, T* y, int64_t y_stride) {
  constexpr int kOwn = 8, kPack = 4;
  __shared__ float numbers[16], factors[256];
  read_tables(tables, {numbers, factors});
  const int lane = threadIdx.x % kLanes;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (kThreads / kLanes) + threadIdx.x / kLanes;
  if (row >= rows.rows) return;  // all lanes of the warp
  // Rows are of whole blocks: shifts find a block, where divisions would cost more than products.
  const int64_t first_block = rows.first_number >> block_bits,
                row_block = row * (rows.columns >> block_bits);
  const uint8_t* const codes_of_row = rows.codes + (rows.first_code + row * rows.columns) / 2;
  float sums[R] = {};
  for (int64_t column = lane * kOwn; column < rows.columns; column += kLanes * kOwn) {
    const uint32_t codes =
        pack_at<1>(reinterpret_cast<const uint32_t*>(codes_of_row + column / 2)).at[0];
    const int64_t block = row_block + (column >> block_bits);
    const float factor = factor_of(rows, factors, rows.first_slot + block, first_block + block);
    float own[kOwn];
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const unsigned code = codes >> (i / 2 * 8 + (i % 2 == 0 ? 4 : 0)) & 15u;
      own[i] = wide(number_of<T>(rows, numbers[code] * factor));
    }
    // Unrolled, sums are in registers.
#pragma unroll
    for (int n = 0; n < R; ++n) {
      if (n >= count) continue;  // not break, which could not be unrolled
#pragma unroll
      for (int half = 0; half < kOwn / kPack; ++half) {
        const auto pack = pack_at<kPack>(x + n * rows.columns + column + half * kPack);
#pragma unroll
        for (int i = 0; i < kPack; ++i)
          sums[n] = fmaf(own[half * kPack + i], wide(pack.at[i]), sums[n]);
      }
    }
  }
#pragma unroll
  for (int n = 0; n < R; ++n) {
    const float sum = warp_sum(sums[n]);
    if (lane == 0 && n < count)
      y[n * y_stride + row] = rounded<T>(bias ? sum + wide(bias[row]) : sum);
  }
}

}  // namespace

void nf4_rows(Type type, const Nf4Rows& rows, const Nf4Tables& tables, void* out, Stream stream) {
  by_type(type, [&](auto number) {
    using T = decltype(number);
    launch("nf4_rows", &nf4_numbers<T>,
           dim3(static_cast<unsigned>(blocks_for(rows.rows * rows.columns, kThreads))),
           dim3(kThreads), 0, stream, rows, tables, static_cast<T*>(out));
  });
}

void nf4_product(Type type, const Nf4Rows& rows, const Nf4Tables& tables, const void* x,
                 int64_t count, const void* bias, void* y, int64_t y_stride, Stream stream) {
  if (count == 0) return;
  int block_bits = 0;
  while (int64_t{1} << block_bits < rows.block) ++block_bits;
  by_type(type, [&](auto number) {
    using T = decltype(number);
    auto* const kernel = count == 1 ? &nf4_multiply<T, 1> : &nf4_multiply<T, kMostFewRows>;
    launch("nf4_product", kernel,
           dim3(static_cast<unsigned>(blocks_for(rows.rows, kThreads / kLanes))), dim3(kThreads), 0,
           stream, rows, block_bits, tables, static_cast<const T*>(x), static_cast<int>(count),
           static_cast<const T*>(bias), static_cast<T*>(y), y_stride);
  });
}

}  // namespace danlu::ops::cuda
