#include <algorithm>

#include "media/resize_weights.h"

namespace danlu::media {
namespace {

constexpr int32_t kHalf = 1 << (kWeightBits - 1);

uint8_t byte_of_sum(int32_t sum) {
  return static_cast<uint8_t>(std::clamp(sum >> kWeightBits, 0, 255));
}

template <int kChannels>
void row_of_pixels(const uint8_t* from, const ResizeWeights& weights, uint8_t* to) {
  const int32_t* weight = weights.fixed.data();
  for (const auto& [begin, count] : weights.taps) {
    int32_t sums[kChannels];
    for (int c = 0; c < kChannels; ++c) sums[c] = kHalf;
    const uint8_t* pixel = from + static_cast<size_t>(begin) * kChannels;
    for (int32_t k = 0; k < count; ++k, pixel += kChannels) {
      for (int c = 0; c < kChannels; ++c) sums[c] += pixel[c] * weight[k];
    }
    for (int c = 0; c < kChannels; ++c) to[c] = byte_of_sum(sums[c]);
    to += kChannels;
    weight += weights.stride;
  }
}

}  // namespace

void resize_row(const uint8_t* from, const ResizeWeights& weights, int64_t channels, uint8_t* to) {
  switch (channels) {
    case 1:
      return row_of_pixels<1>(from, weights, to);
    case 2:
      return row_of_pixels<2>(from, weights, to);
    case 3:
      return row_of_pixels<3>(from, weights, to);
    default:
      return row_of_pixels<4>(from, weights, to);
  }
}

void resize_column(const uint8_t* from, size_t row_bytes, int32_t count, const int32_t* weights,
                   size_t num_bytes, uint8_t* to) {
  constexpr size_t kBlock = 64;
  for (size_t x = 0; x < num_bytes; x += kBlock) {
    int32_t sums[kBlock];
    std::fill_n(sums, kBlock, kHalf);
    const size_t width = std::min(kBlock, num_bytes - x);
    for (int32_t k = 0; k < count; ++k) {
      const uint8_t* const row = from + static_cast<size_t>(k) * row_bytes + x;
      for (size_t i = 0; i < width; ++i) sums[i] += row[i] * weights[k];
    }
    for (size_t i = 0; i < width; ++i) to[x + i] = byte_of_sum(sums[i]);
  }
}

}  // namespace danlu::media
