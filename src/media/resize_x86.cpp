// The same sums by AVX2. A weight is upper * 2^15 + lower, so that two products of 16 bits and
// their sum are one instruction; sums may wrap, since the last one fits into 32 bits.
#include "media/resize_weights.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include <cstring>

#include "base/cpu_class.h"

#define DANLU_AVX2 __attribute__((target("avx2")))

namespace danlu::media {
namespace {

constexpr int kLowerBits = 15;
constexpr int kLowerMask = (1 << kLowerBits) - 1;

/// Weights of two neighbours, one above the other in 32 bits.
int32_t lower_pair(const int32_t* weights) {
  return (weights[0] & kLowerMask) | (weights[1] & kLowerMask) << 16;
}
int32_t upper_pair(const int32_t* weights) {
  return ((weights[0] >> kLowerBits) & 0xffff) |
         static_cast<int32_t>(static_cast<uint32_t>(weights[1] >> kLowerBits) << 16);
}

DANLU_AVX2 inline __m256i finished(__m256i lower, __m256i upper) {
  const __m256i half = _mm256_set1_epi32(1 << (kWeightBits - 1));
  const __m256i sum = _mm256_add_epi32(lower, _mm256_slli_epi32(upper, kLowerBits));
  return _mm256_srai_epi32(_mm256_add_epi32(sum, half), kWeightBits);
}

/// Three bytes from the sums of two halves of the taps.
DANLU_AVX2 inline void store_pixel(__m256i lower, __m256i upper, uint8_t* to) {
  const __m256i sum = _mm256_add_epi32(lower, _mm256_slli_epi32(upper, kLowerBits));
  __m128i value = _mm_add_epi32(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
  value = _mm_add_epi32(value, _mm_set1_epi32(1 << (kWeightBits - 1)));
  value = _mm_srai_epi32(value, kWeightBits);
  value = _mm_packs_epi32(value, value);
  value = _mm_packus_epi16(value, value);
  const int32_t bytes = _mm_cvtsi128_si32(value);
  std::memcpy(to, &bytes, 3);
}

/// Four pixels of RGB as pairs of neighbours: red, green, blue of the first two in the lower half.
DANLU_AVX2 inline __m256i pairs_of_pixels(const uint8_t* from) {
  const __m256i places =
      _mm256_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1, 6, -1, 9, -1, 7,
                       -1, 10, -1, 8, -1, 11, -1, -1, -1, -1, -1);
  const __m128i pixels = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(pixels), places);
}

/// Sixteen bytes of two rows, as pairs.
DANLU_AVX2 inline void pairs_of_rows(const uint8_t* first, const uint8_t* second,
                                     __m256i pairs[2]) {
  const __m128i a = _mm_loadu_si128(reinterpret_cast<const __m128i*>(first));
  const __m128i b = _mm_loadu_si128(reinterpret_cast<const __m128i*>(second));
  pairs[0] = _mm256_cvtepu8_epi16(_mm_unpacklo_epi8(a, b));
  pairs[1] = _mm256_cvtepu8_epi16(_mm_unpackhi_epi8(a, b));
}

/// Sixteen bytes of a column.
DANLU_AVX2 void column_block(const uint8_t* from, size_t row_bytes, int32_t count,
                             const int32_t* weights, uint8_t* to) {
  __m256i lower[2] = {}, upper[2] = {};
  for (int32_t k = 0; k < count; k += 2) {
    const uint8_t* const row = from + static_cast<size_t>(k) * row_bytes;
    __m256i pairs[2];
    // After the last row its own weight is 0.
    pairs_of_rows(row, k + 1 < count ? row + row_bytes : row, pairs);
    const __m256i low = _mm256_set1_epi32(lower_pair(weights + k));
    const __m256i high = _mm256_set1_epi32(upper_pair(weights + k));
    for (int i = 0; i < 2; ++i) {
      lower[i] = _mm256_add_epi32(lower[i], _mm256_madd_epi16(pairs[i], low));
      upper[i] = _mm256_add_epi32(upper[i], _mm256_madd_epi16(pairs[i], high));
    }
  }
  const __m256i words = _mm256_permute4x64_epi64(
      _mm256_packs_epi32(finished(lower[0], upper[0]), finished(lower[1], upper[1])), 0xd8);
  const __m128i bytes =
      _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), bytes);
}

}  // namespace

bool has_vector_resize() {
  static const bool kHas = cpu_class() >= CpuClass::kAvx2;
  return kHas;
}

DANLU_AVX2 void resize_four_rows_vector(const uint8_t* from, size_t from_bytes,
                                        const ResizeWeights& weights, uint8_t* to,
                                        size_t to_bytes) {
  const int32_t* weight = weights.fixed.data();
  for (const auto& [begin, count] : weights.taps) {
    __m256i lower[4] = {}, upper[4] = {};
    const uint8_t* pixel = from + static_cast<size_t>(begin) * 3;
    for (int32_t k = 0; k < count; k += 4, pixel += 12) {
      const __m128i four = _mm_loadu_si128(reinterpret_cast<const __m128i*>(weight + k));
      const __m128i low_words = _mm_and_si128(four, _mm_set1_epi32(kLowerMask));
      const __m128i high_words = _mm_srai_epi32(four, kLowerBits);
      const __m128i low_pairs = _mm_packs_epi32(low_words, low_words);
      const __m128i high_pairs = _mm_packs_epi32(high_words, high_words);
      const __m256i order = _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1);
      const __m256i low = _mm256_permutevar8x32_epi32(_mm256_castsi128_si256(low_pairs), order);
      const __m256i high = _mm256_permutevar8x32_epi32(_mm256_castsi128_si256(high_pairs), order);
      for (size_t row = 0; row < 4; ++row) {
        const __m256i pairs = pairs_of_pixels(pixel + row * from_bytes);
        lower[row] = _mm256_add_epi32(lower[row], _mm256_madd_epi16(pairs, low));
        upper[row] = _mm256_add_epi32(upper[row], _mm256_madd_epi16(pairs, high));
      }
    }
    for (size_t row = 0; row < 4; ++row) store_pixel(lower[row], upper[row], to + row * to_bytes);
    to += 3;
    weight += weights.stride;
  }
}

DANLU_AVX2 void resize_column_vector(const uint8_t* from, size_t row_bytes, int32_t count,
                                     const int32_t* weights, size_t num_bytes, uint8_t* to) {
  constexpr size_t kBlock = 16;
  if (num_bytes < kBlock) return resize_column(from, row_bytes, count, weights, num_bytes, to);
  size_t x = 0;
  for (; x + kBlock <= num_bytes; x += kBlock) {
    column_block(from + x, row_bytes, count, weights, to + x);
  }
  // The rest together with bytes that are there already.
  if (x < num_bytes) {
    x = num_bytes - kBlock;
    column_block(from + x, row_bytes, count, weights, to + x);
  }
}

}  // namespace danlu::media
#else

namespace danlu::media {

bool has_vector_resize() { return false; }
void resize_four_rows_vector(const uint8_t*, size_t, const ResizeWeights&, uint8_t*, size_t) {}
void resize_column_vector(const uint8_t* from, size_t row_bytes, int32_t count,
                          const int32_t* weights, size_t num_bytes, uint8_t* to) {
  resize_column(from, row_bytes, count, weights, num_bytes, to);
}

}  // namespace danlu::media
#endif
