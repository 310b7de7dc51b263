#include "media/raw_picture.h"

#include <algorithm>
#include <cstring>

namespace danlu::media {
namespace {

/// a * b / 255, rounded.
uint32_t product_of_255(uint32_t a, uint32_t b) {
  const uint32_t product = a * b + 128;
  return (product + (product >> 8)) >> 8;
}

/// `value` over white, through `alpha`.
uint8_t over_white(uint32_t value, uint32_t alpha) {
  const uint32_t sum = 255 * (255 - alpha) + value * alpha + 128;
  return static_cast<uint8_t>((sum + (sum >> 8)) >> 8);
}

/// Calls to_pixel(pixel of raw, three bytes of out) for each pixel.
template <typename ToPixel>
Picture each_pixel(const RawPicture& raw, const ToPixel& to_pixel) {
  Picture out(raw.size);
  const int64_t step = bytes_per_pixel(raw.mode);
  const uint8_t* from = raw.bytes.data();
  uint8_t* to = out.rgb.data();
  for (int64_t i = 0, end = raw.size.area(); i < end; ++i, from += step, to += 3)
    to_pixel(from, to);
  return out;
}

void grey_pixel(const uint8_t* from, uint8_t* to) { to[0] = to[1] = to[2] = from[0]; }

void cmyk_pixel(const uint8_t* from, uint8_t* to) {
  const uint32_t white = 255u - from[3];
  for (int c = 0; c < 3; ++c) {
    to[c] = static_cast<uint8_t>(white - std::min(white, product_of_255(from[c], white)));
  }
}

Picture rgba_to_rgb(const RawPicture& raw, Alpha alpha) {
  if (alpha == Alpha::kDropped) {
    return each_pixel(raw, [](const uint8_t* from, uint8_t* to) { std::memcpy(to, from, 3); });
  }
  return each_pixel(raw, [](const uint8_t* from, uint8_t* to) {
    for (int c = 0; c < 3; ++c) to[c] = over_white(from[c], from[3]);
  });
}

/// The pixel of the file that is seen at (x, y), as a start and two steps through its pixels.
struct Turn {
  int64_t start, step_x, step_y;
};

Turn turn_of(Size size, int orientation) {
  const int64_t w = size.width, last_x = w - 1, last_y = (size.height - 1) * w;
  switch (orientation) {
    case 2:
      return {last_x, -1, w};
    case 3:
      return {last_x + last_y, -1, -w};
    case 4:
      return {last_y, 1, -w};
    case 5:
      return {0, w, 1};
    case 6:
      return {last_y, -w, 1};
    case 7:
      return {last_x + last_y, -w, -1};
    case 8:
      return {last_x, w, -1};
    default:
      return {0, 1, w};
  }
}

/// In squares, so that both pictures stay in the processor's cache where rows become columns.
template <int64_t kBytes>
void turn_pixels(const uint8_t* from, uint8_t* to, Size out, const Turn& turn) {
  constexpr int64_t kSide = 32;
  for (int64_t y0 = 0; y0 < out.height; y0 += kSide) {
    for (int64_t x0 = 0; x0 < out.width; x0 += kSide) {
      for (int64_t y = y0; y < std::min(out.height, y0 + kSide); ++y) {
        for (int64_t x = x0; x < std::min(out.width, x0 + kSide); ++x) {
          std::memcpy(to + (y * out.width + x) * kBytes,
                      from + (turn.start + x * turn.step_x + y * turn.step_y) * kBytes, kBytes);
        }
      }
    }
  }
}

}  // namespace

Picture to_rgb(RawPicture raw, Alpha alpha) {
  switch (raw.mode) {
    case PixelMode::kRgb: {
      Picture out;
      out.size = raw.size;
      out.rgb = std::move(raw.bytes);
      return out;
    }
    case PixelMode::kBilevel:
    case PixelMode::kGrey:
    case PixelMode::kGreyAlpha:
      return each_pixel(raw, grey_pixel);
    case PixelMode::kPalette:
      return each_pixel(raw, [&raw](const uint8_t* from, uint8_t* to) {
        std::memcpy(to, raw.palette.data() + 3 * from[0], 3);
      });
    case PixelMode::kRgba:
      return rgba_to_rgb(raw, alpha);
    case PixelMode::kCmyk:
      return each_pixel(raw, cmyk_pixel);
    case PixelMode::kGrey16:
      return each_pixel(raw, [](const uint8_t* from, uint8_t* to) {
        to[0] = to[1] = to[2] = from[1] ? 255 : from[0];
      });
  }
  return {};
}

RawPicture turned_upright(RawPicture raw, int orientation) {
  if (orientation <= 1 || orientation > 8) return raw;
  const Size size = orientation >= 5 ? Size{raw.size.height, raw.size.width} : raw.size;
  RawPicture out(raw.mode, size);
  const Turn turn = turn_of(raw.size, orientation);
  switch (bytes_per_pixel(raw.mode)) {
    case 1:
      turn_pixels<1>(raw.bytes.data(), out.bytes.data(), size, turn);
      break;
    case 2:
      turn_pixels<2>(raw.bytes.data(), out.bytes.data(), size, turn);
      break;
    case 3:
      turn_pixels<3>(raw.bytes.data(), out.bytes.data(), size, turn);
      break;
    default:
      turn_pixels<4>(raw.bytes.data(), out.bytes.data(), size, turn);
  }
  out.palette = std::move(raw.palette);
  return out;
}

}  // namespace danlu::media
