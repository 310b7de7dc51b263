#include "media/resize.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "media/resize_weights.h"

namespace danlu::media {
namespace {

/// Cubic convolution with a = -1/2.
double bicubic(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
  return 0;
}

/// Where each pixel of one direction lies in the other picture: the places are summed up, because
/// products differ from the sums where a place is nearly whole.
std::vector<int64_t> nearest_places(int64_t from, int64_t to) {
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  std::vector<int64_t> places(static_cast<size_t>(to));
  double place = scale * 0.5;
  for (int64_t& at : places) {
    at = std::min(from - 1, static_cast<int64_t>(place));
    place += scale;
  }
  return places;
}

PixelBuffer nearest_bytes(const PixelBuffer& from, Size size, int64_t channels, Size to) {
  const auto columns = nearest_places(size.width, to.width);
  const auto rows = nearest_places(size.height, to.height);
  PixelBuffer out(to.area() * channels);
  uint8_t* at = out.data();
  for (const int64_t y : rows) {
    const uint8_t* const row = from.data() + y * size.width * channels;
    for (const int64_t x : columns) {
      std::memcpy(at, row + x * channels, static_cast<size_t>(channels));
      at += channels;
    }
  }
  return out;
}

/// Rows first … first + count of `from`, each resized to `width`.
PixelBuffer along_rows(const PixelBuffer& from, int64_t from_width, int64_t first, int64_t count,
                       int64_t channels, int64_t width) {
  const ResizeWeights weights = bicubic_weights(from_width, width);
  const auto from_bytes = static_cast<size_t>(from_width * channels);
  const auto to_bytes = static_cast<size_t>(width * channels);
  PixelBuffer out(count * width * channels);
  const uint8_t* row = from.data() + static_cast<size_t>(first) * from_bytes;
  uint8_t* to = out.data();
  int64_t y = 0;
  if (channels == 3 && has_vector_resize()) {
    for (; y + 4 <= count; y += 4, row += 4 * from_bytes, to += 4 * to_bytes) {
      resize_four_rows_vector(row, from_bytes, weights, to, to_bytes);
    }
  }
  for (; y < count; ++y, row += from_bytes, to += to_bytes) resize_row(row, weights, channels, to);
  return out;
}

PixelBuffer bicubic_bytes(const PixelBuffer& from, Size size, int64_t channels, Size to) {
  const bool changes_rows = to.width != size.width, changes_columns = to.height != size.height;
  if (!changes_columns) {
    return along_rows(from, size.width, 0, size.height, channels, to.width);
  }
  const ResizeWeights weights = bicubic_weights(size.height, to.height);
  int64_t first = 0;
  PixelBuffer narrow;
  if (changes_rows) {
    first = weights.taps.front().begin;
    const int64_t end = weights.taps.back().begin + weights.taps.back().count;
    narrow = along_rows(from, size.width, first, end - first, channels, to.width);
  }
  const uint8_t* const rows = changes_rows ? narrow.data() : from.data();
  const auto row_bytes = static_cast<size_t>(to.width * channels);
  const auto column = has_vector_resize() ? resize_column_vector : resize_column;
  PixelBuffer out(to.area() * channels);
  for (size_t y = 0; y < weights.taps.size(); ++y) {
    const auto [begin, count] = weights.taps[y];
    column(rows + static_cast<size_t>(begin - first) * row_bytes, row_bytes, count,
           weights.fixed.data() + y * weights.stride, row_bytes, out.data() + y * row_bytes);
  }
  return out;
}

uint32_t grey16_at(const RawPicture& raw, int64_t i) {
  return raw.bytes.data()[2 * i] | static_cast<uint32_t>(raw.bytes.data()[2 * i + 1]) << 8;
}

/// One direction of grey of 16 bits: `lines` of `length` values, whose neighbours are `step` apart.
std::vector<double> along(const std::vector<double>& from, int64_t lines, int64_t line_step,
                          int64_t length, int64_t step, int64_t to_length, int64_t to_line_step,
                          int64_t to_step) {
  const ResizeWeights weights = bicubic_weights(length, to_length);
  std::vector<double> out(static_cast<size_t>(lines * to_length));
  for (int64_t line = 0; line < lines; ++line) {
    for (int64_t i = 0; i < to_length; ++i) {
      const auto [begin, count] = weights.taps[static_cast<size_t>(i)];
      const double* const weight = weights.exact.data() + static_cast<size_t>(i) * weights.stride;
      double sum = 0;
      for (int64_t k = 0; k < count; ++k) {
        sum += from[static_cast<size_t>(line * line_step + (begin + k) * step)] * weight[k];
      }
      out[static_cast<size_t>(line * to_line_step + i * to_step)] = std::round(sum);
    }
  }
  return out;
}

RawPicture resized_grey16(const RawPicture& raw, Size to) {
  const auto [width, height] = raw.size;
  std::vector<double> values(static_cast<size_t>(raw.size.area()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = grey16_at(raw, static_cast<int64_t>(i));
  if (to.width != width) values = along(values, height, width, width, 1, to.width, to.width, 1);
  if (to.height != height) {
    values = along(values, to.width, 1, height, to.width, to.height, 1, to.width);
  }
  RawPicture out(raw.mode, to);
  for (size_t i = 0; i < values.size(); ++i) {
    const auto value = static_cast<uint32_t>(std::clamp(values[i], 0.0, 65535.0));
    out.bytes.data()[2 * i] = static_cast<uint8_t>(value);
    out.bytes.data()[2 * i + 1] = static_cast<uint8_t>(value >> 8);
  }
  return out;
}

/// Each colour times its alpha, or divided by it again; alpha is the last byte of a pixel.
void weigh_by_alpha(RawPicture& raw) {
  const int64_t step = bytes_per_pixel(raw.mode);
  uint8_t* pixel = raw.bytes.data();
  for (int64_t i = 0; i < raw.size.area(); ++i, pixel += step) {
    for (int64_t c = 0; c + 1 < step; ++c) {
      const uint32_t product = uint32_t{pixel[c]} * pixel[step - 1] + 128;
      pixel[c] = static_cast<uint8_t>((product + (product >> 8)) >> 8);
    }
  }
}

void unweigh_by_alpha(RawPicture& raw) {
  const int64_t step = bytes_per_pixel(raw.mode);
  uint8_t* pixel = raw.bytes.data();
  for (int64_t i = 0; i < raw.size.area(); ++i, pixel += step) {
    const uint32_t alpha = pixel[step - 1];
    if (alpha == 0 || alpha == 255) continue;
    for (int64_t c = 0; c + 1 < step; ++c) {
      pixel[c] = static_cast<uint8_t>(std::min(255u, 255u * pixel[c] / alpha));
    }
  }
}

}  // namespace

ResizeWeights bicubic_weights(int64_t from, int64_t to) {
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  const double widened = std::max(scale, 1.0), support = 2.0 * widened;
  const auto most = static_cast<size_t>(std::ceil(support)) * 2 + 1;
  ResizeWeights weights;
  weights.stride = (most + 3) / 4 * 4;
  weights.taps.reserve(static_cast<size_t>(to));
  weights.exact.resize(static_cast<size_t>(to) * weights.stride);
  weights.fixed.resize(weights.exact.size());
  for (int64_t i = 0; i < to; ++i) {
    const double centre = (static_cast<double>(i) + 0.5) * scale;
    const int64_t begin = std::max<int64_t>(0, static_cast<int64_t>(centre - support + 0.5));
    const int64_t end = std::min(from, static_cast<int64_t>(centre + support + 0.5));
    double* const exact = weights.exact.data() + static_cast<size_t>(i) * weights.stride;
    int32_t* const fixed = weights.fixed.data() + static_cast<size_t>(i) * weights.stride;
    const double narrowed = 1.0 / widened;
    double sum = 0;
    for (int64_t x = begin; x < end; ++x) {
      const double weight = bicubic((static_cast<double>(x) - centre + 0.5) * narrowed);
      exact[x - begin] = weight;
      sum += weight;
    }
    for (int64_t k = 0; k < end - begin; ++k) {
      if (sum != 0) exact[k] /= sum;
      const double scaled = exact[k] * (1 << kWeightBits);
      fixed[k] = static_cast<int32_t>(scaled < 0 ? scaled - 0.5 : scaled + 0.5);
    }
    weights.taps.push_back({static_cast<int32_t>(begin), static_cast<int32_t>(end - begin)});
  }
  return weights;
}

PixelBuffer resized_bytes(const PixelBuffer& from, Size size, int64_t channels, Size to,
                          Filter filter) {
  return filter == Filter::kNearest ? nearest_bytes(from, size, channels, to)
                                    : bicubic_bytes(from, size, channels, to);
}

Picture resized(const Picture& picture, Size to, Filter filter) {
  Picture out;
  out.size = to;
  out.rgb = resized_bytes(picture.rgb, picture.size, 3, to, filter);
  return out;
}

RawPicture resized(RawPicture raw, Size to, Filter filter) {
  if (raw.mode == PixelMode::kPalette || raw.mode == PixelMode::kBilevel) filter = Filter::kNearest;
  if (raw.mode == PixelMode::kGrey16 && filter != Filter::kNearest) return resized_grey16(raw, to);
  const bool weighs = filter != Filter::kNearest &&
                      (raw.mode == PixelMode::kRgba || raw.mode == PixelMode::kGreyAlpha);
  if (weighs) weigh_by_alpha(raw);
  raw.bytes = resized_bytes(raw.bytes, raw.size, bytes_per_pixel(raw.mode), to, filter);
  raw.size = to;
  if (weighs) unweigh_by_alpha(raw);
  return raw;
}

}  // namespace danlu::media
