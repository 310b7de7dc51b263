// Rows of a matrix in NF4 made dense: a thread for each number.
#include "ops/cuda/launch.cuh"

namespace danlu::ops::cuda {
namespace {

/// base/nf4.h's kNf4Group.
constexpr int64_t kGroupFactors = 256;

template <typename T>
__global__ void nf4_numbers(Nf4Rows rows, Nf4Tables tables, T* out) {
  // Threads look up other numbers each, which parameters give one after the other.
  __shared__ float numbers[16];
  if (threadIdx.x < 16) numbers[threadIdx.x] = tables.numbers[threadIdx.x];
  __syncthreads();
  const int64_t index = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (index >= rows.rows * rows.columns) return;
  const int64_t row = index / rows.columns, column = index % rows.columns;
  const int64_t first = rows.first_number + row * rows.whole_columns;
  const int64_t block = (first + column) / rows.block;
  // In a part that is cut from each row, every row has slots of its own.
  const int64_t slot = rows.slots_of_row == 0
                           ? rows.first_slot + block - rows.first_number / rows.block
                           : rows.first_slot + row * rows.slots_of_row + block - first / rows.block;
  // Not in one operation: a factor's bits are those of other devices.
  const float factor = rows.factors ? rows.factors[slot]
                                    : __fadd_rn(__fmul_rn(tables.factors[rows.factor_codes[slot]],
                                                          rows.groups[block / kGroupFactors]),
                                                *rows.offset);
  const int64_t code_index = rows.first_code + index;
  const unsigned byte = rows.codes[code_index / 2];
  const unsigned code = code_index % 2 == 0 ? byte >> 4 : byte & 15u;
  float number = numbers[code] * factor;
  if (rows.rounds_to_bf16) number = wide(rounded<BF16>(number));
  if (rows.rounds_to_f16) number = wide(rounded<F16>(number));
  out[index] = rounded<T>(number);
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

}  // namespace danlu::ops::cuda
