// Weights in blocks of 8, 6 or 4 bits (ops/block_weight.h): products of a few rows with them, and
// their numbers made dense for products of many.
//
// A band of 16 rows is a block of threads. A lane reads 16 bytes of codes: 4 rows of a chunk, so a
// warp reads a group of 8 bits whole, or two of the others. Bits of a result depend on its own row
// alone: sums are of one order and of one operation a product, however many rows are beside it.
#include "ops/cuda/launch.cuh"

namespace danlu::ops::cuda {
namespace {

constexpr int kBand = 16, kGroup = 32, kGroupsOfSuper = 8;
constexpr int kWarps = kThreads / kLanes;
/// Rows and columns that a lane has at a time.
constexpr int kOwnRows = 4, kOwnColumns = 4;

template <BlockKind K>
constexpr int kCodeBytes = K == BlockKind::kQ8_0   ? 512
                           : K == BlockKind::kQ6_K ? 384
                                                   : 256;
template <BlockKind K>
constexpr int kScaleBytes = 32;
template <BlockKind K>
constexpr int kSuperBytes = K == BlockKind::kQ4_K ? 64 : 32;
template <BlockKind K>
constexpr int kZero = K == BlockKind::kQ8_0   ? 128
                      : K == BlockKind::kQ4_0 ? 8
                      : K == BlockKind::kQ6_K ? 32
                                              : 0;
/// Lanes that read the codes of a group, and how many chunks of columns a byte of theirs holds.
template <BlockKind K>
constexpr int kGroupLanes = K == BlockKind::kQ8_0 ? 32 : 16;
template <BlockKind K>
constexpr int kParts = K == BlockKind::kQ8_0 ? 1 : 2;

__device__ inline float half_at(const uint8_t* bytes, int index) {
  return wide(F16{reinterpret_cast<const uint16_t*>(bytes)[index]});
}

/// What a lane reads of a group.
struct Piece {
  const uint8_t *scales, *supers = nullptr;
  Pack<uint32_t, kOwnRows> codes, uppers;
  int chunk, first_row;
};

template <BlockKind K>
__device__ Piece piece_of(const BlockBands& weight, int64_t band, int64_t group, int lane) {
  const int64_t groups = weight.columns / kGroup, index = band * groups + group;
  Piece piece;
  piece.chunk = lane % kGroupLanes<K> / 4;
  piece.first_row = lane % 4 * kOwnRows;
  const auto* const words =
      reinterpret_cast<const uint32_t*>(weight.codes + index * kCodeBytes<K>) + piece.first_row;
  piece.codes = pack_at<kOwnRows>(words + piece.chunk * kBand);
  if (K == BlockKind::kQ6_K)
    piece.uppers = pack_at<kOwnRows>(words + (4 + piece.chunk % 2) * kBand);
  piece.scales = weight.scales + index * kScaleBytes<K>;
  if (K == BlockKind::kQ4_K || K == BlockKind::kQ6_K)
    piece.supers = weight.supers + index / kGroupsOfSuper * kSuperBytes<K>;
  return piece;
}

/// Column i of the lane's row r, of part 0 or 1.
template <BlockKind K>
__device__ float code_of(const Piece& piece, int r, int i, int part) {
  if (K == BlockKind::kQ8_0)
    return static_cast<float>(static_cast<int>(piece.codes.at[r] >> 8 * i & 255u) - kZero<K>);
  int code = static_cast<int>(piece.codes.at[r] >> (8 * i + 4 * part) & 15u);
  if (K == BlockKind::kQ6_K)
    code |= static_cast<int>(piece.uppers.at[r] >> (8 * i + 4 * part + piece.chunk / 2 * 2) & 3u)
            << 4;
  return static_cast<float>(code - kZero<K>);
}

/// The numbers of the lane's row r. Not in one operation each: bits are those of other devices.
template <BlockKind K>
__device__ void numbers_of(const Piece& piece, int r, int part, float (&numbers)[kOwnColumns]) {
  const int row = piece.first_row + r;
  float scale = 0, offset = 0;
  if (K == BlockKind::kQ8_0 || K == BlockKind::kQ4_0) {
    scale = half_at(piece.scales, row);
  } else {
    const int at = K == BlockKind::kQ6_K ? part * kBand + row : row;
    scale = __fmul_rn(half_at(piece.supers, row),
                      static_cast<float>(static_cast<int8_t>(piece.scales[at])));
    if (K == BlockKind::kQ4_K)
      offset = __fmul_rn(half_at(piece.supers, kBand + row),
                         static_cast<float>(piece.scales[kBand + row]));
  }
#pragma unroll
  for (int i = 0; i < kOwnColumns; ++i) {
    numbers[i] = __fmul_rn(scale, code_of<K>(piece, r, i, part));
    if (K == BlockKind::kQ4_K) numbers[i] = __fadd_rn(numbers[i], -offset);
  }
}

/// Where a lane's part of a group begins in a row.
__device__ inline int64_t column_of(const Piece& piece, int64_t group, int part) {
  return group * kGroup + part * (kGroup / 2) + piece.chunk * kOwnColumns;
}

/// Calls visit(group) for the groups of a warp's lane, which has every `of`-th of the warps.
template <BlockKind K, typename Visit>
__device__ void for_each_group(const BlockBands& weight, int warp, int of, const Visit& visit) {
  constexpr int kAtOnce = kLanes / kGroupLanes<K>;
  const int64_t groups = weight.columns / kGroup;
  const int lane = threadIdx.x % kLanes;
  for (int64_t group = static_cast<int64_t>(warp) * kAtOnce + lane / kGroupLanes<K>; group < groups;
       group += static_cast<int64_t>(of) * kAtOnce)
    visit(group, lane);
}

/// y [rows, weight.rows] of x [rows, weight.columns]; `rows` at most R.
template <BlockKind K, typename T, int R>
__global__ void multiply_band(BlockBands weight, const T* x, int rows, const T* bias, T* y) {
  __shared__ float shares[kWarps][R * kBand];
  const int warp = threadIdx.x / kLanes;
  float sums[R][kOwnRows] = {};
  for_each_group<K>(weight, warp, kWarps, [&](int64_t group, int lane) {
    const Piece piece = piece_of<K>(weight, blockIdx.x, group, lane);
    // Unrolled, sums and numbers are in registers.
#pragma unroll
    for (int part = 0; part < kParts<K>; ++part) {
      const T* const own_x = x + column_of(piece, group, part);
      float numbers[kOwnRows][kOwnColumns];
#pragma unroll
      for (int r = 0; r < kOwnRows; ++r) numbers_of<K>(piece, r, part, numbers[r]);
#pragma unroll
      for (int n = 0; n < R; ++n) {
        if (n >= rows) continue;  // not break, which could not be unrolled
        const Pack<T, kOwnColumns> four = pack_at<kOwnColumns>(own_x + n * weight.columns);
#pragma unroll
        for (int r = 0; r < kOwnRows; ++r) {
#pragma unroll
          for (int i = 0; i < kOwnColumns; ++i)
            sums[n][r] = fmaf(numbers[r][i], wide(four.at[i]), sums[n][r]);
        }
      }
    }
  });
  // Lanes four apart have the same rows.
#pragma unroll
  for (int n = 0; n < R; ++n) {
#pragma unroll
    for (int r = 0; r < kOwnRows; ++r) {
      float sum = sums[n][r];
      for (int apart = 4; apart < kLanes; apart *= 2) sum += __shfl_xor_sync(~0u, sum, apart);
      const int lane = threadIdx.x % kLanes;
      if (lane < 4) shares[warp][n * kBand + lane * kOwnRows + r] = sum;
    }
  }
  __syncthreads();
  const int n = threadIdx.x / kBand;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kBand + threadIdx.x % kBand;
  if (n >= rows || row >= weight.rows) return;
  float sum = 0;
  for (int w = 0; w < kWarps; ++w) sum += shares[w][threadIdx.x];
  if (bias) sum += wide(bias[row]);
  y[n * weight.rows + row] = rounded<T>(sum);
}

template <BlockKind K, typename T>
__global__ void write_band(BlockBands weight, T* out) {
  for_each_group<K>(weight, threadIdx.x / kLanes, kWarps, [&](int64_t group, int lane) {
    const Piece piece = piece_of<K>(weight, blockIdx.x, group, lane);
#pragma unroll
    for (int part = 0; part < kParts<K>; ++part) {
#pragma unroll
      for (int r = 0; r < kOwnRows; ++r) {
        const int64_t row = static_cast<int64_t>(blockIdx.x) * kBand + piece.first_row + r;
        if (row >= weight.rows) continue;
        float numbers[kOwnColumns];
        numbers_of<K>(piece, r, part, numbers);
        Pack<T, kOwnColumns> four;
#pragma unroll
        for (int i = 0; i < kOwnColumns; ++i) four.at[i] = rounded<T>(numbers[i]);
        put_pack(out + row * weight.columns + column_of(piece, group, part), four);
      }
    }
  });
}

template <BlockKind K>
struct OfKind {
  static constexpr BlockKind kind = K;
};
/// Calls body(OfKind of the kind, number of the type).
template <typename Body>
void by_kind(BlockKind kind, Type type, const Body& body) {
  by_type(type, [&](auto number) {
    if (kind == BlockKind::kQ8_0) return body(OfKind<BlockKind::kQ8_0>{}, number);
    if (kind == BlockKind::kQ4_0) return body(OfKind<BlockKind::kQ4_0>{}, number);
    if (kind == BlockKind::kQ4_K) return body(OfKind<BlockKind::kQ4_K>{}, number);
    body(OfKind<BlockKind::kQ6_K>{}, number);
  });
}

dim3 bands_of(const BlockBands& weight) {
  return dim3(static_cast<unsigned>(blocks_for(weight.rows, kBand)));
}

}  // namespace

void block_product(Type type, const BlockBands& weight, const void* x, int64_t rows,
                   const void* bias, void* y, Stream stream) {
  if (rows == 0) return;
  by_kind(weight.kind, type, [&](auto of, auto number) {
    using T = decltype(number);
    constexpr BlockKind kKind = decltype(of)::kind;
    auto* const kernel =
        rows == 1 ? &multiply_band<kKind, T, 1> : &multiply_band<kKind, T, kMostFewRows>;
    launch("block_product", kernel, bands_of(weight), dim3(kThreads), 0, stream, weight,
           static_cast<const T*>(x), static_cast<int>(rows), static_cast<const T*>(bias),
           static_cast<T*>(y));
  });
}

void block_numbers(Type type, const BlockBands& weight, void* out, Stream stream) {
  by_kind(weight.kind, type, [&](auto of, auto number) {
    using T = decltype(number);
    launch("block_numbers", &write_band<decltype(of)::kind, T>, bands_of(weight), dim3(kThreads), 0,
           stream, weight, static_cast<T*>(out));
  });
}

}  // namespace danlu::ops::cuda
