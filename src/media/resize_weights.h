// media/resize_weights.h: which pixels a resized one is made of, and the inner loops over them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace danlu::media {

/// Bits after the point of a fixed-point weight.
inline constexpr int kWeightBits = 32 - 8 - 2;

/// For each pixel of one direction, the pixels begin … begin + count of the other picture, and
/// their weights, which are `stride` apart.
struct ResizeWeights {
  struct Taps {
    int32_t begin, count;
  };
  std::vector<Taps> taps;
  std::vector<double> exact;   ///< sum 1
  std::vector<int32_t> fixed;  ///< the same times 2^kWeightBits, rounded; 0 after a pixel's own
  size_t stride = 0;           ///< a multiple of 4
};

ResizeWeights bicubic_weights(int64_t from, int64_t to);

/// One row of `channels`-byte pixels from one row.
void resize_row(const uint8_t* from, const ResizeWeights& weights, int64_t channels, uint8_t* to);

/// One row of num_bytes bytes from count rows, `row_bytes` apart.
void resize_column(const uint8_t* from, size_t row_bytes, int32_t count, const int32_t* weights,
                   size_t num_bytes, uint8_t* to);

/// The same with AVX2, where has_vector_resize(): four rows at once, `from_bytes` and `to_bytes`
/// apart, of three-byte pixels. Reads up to PixelBuffer::kSlackBytes after a row.
bool has_vector_resize();
void resize_four_rows_vector(const uint8_t* from, size_t from_bytes, const ResizeWeights& weights,
                             uint8_t* to, size_t to_bytes);
void resize_column_vector(const uint8_t* from, size_t row_bytes, int32_t count,
                          const int32_t* weights, size_t num_bytes, uint8_t* to);

}  // namespace danlu::media
