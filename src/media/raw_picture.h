// media/raw_picture.h: a decoded picture as it lies in its file, and as RGB.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "media/smart_resize.h"

namespace danlu::media {

/// Bytes that nobody has touched before they are written: what a bomb claims costs no memory.
class PixelBuffer {
 public:
  /// Bytes after the last one that may be read, whatever they hold: vector loads take whole words.
  static constexpr size_t kSlackBytes = 32;
  PixelBuffer() = default;
  explicit PixelBuffer(int64_t size_bytes)
      : data_(new uint8_t[static_cast<size_t>(size_bytes) + kSlackBytes]), size_(size_bytes) {}
  uint8_t* data() { return data_.get(); }
  const uint8_t* data() const { return data_.get(); }
  int64_t size() const { return size_; }

 private:
  std::unique_ptr<uint8_t[]> data_;
  int64_t size_ = 0;
};

/// RGB8, [height, width, 3].
struct Picture {
  Size size;
  PixelBuffer rgb;

  Picture() = default;
  explicit Picture(Size pixels) : size(pixels), rgb(pixels.area() * 3) {}
};

enum class PixelMode {
  kBilevel,  ///< a byte, 0 or 255
  kGrey,
  kGreyAlpha,
  kPalette,  ///< a byte, index into the palette
  kRgb,
  kRgba,
  kCmyk,    ///< 0 is no ink
  kGrey16,  ///< two bytes, little-endian
};

/// Bytes of a pixel.
constexpr int64_t bytes_per_pixel(PixelMode mode) {
  switch (mode) {
    case PixelMode::kBilevel:
    case PixelMode::kGrey:
    case PixelMode::kPalette:
      return 1;
    case PixelMode::kGreyAlpha:
    case PixelMode::kGrey16:
      return 2;
    case PixelMode::kRgb:
      return 3;
    case PixelMode::kRgba:
    case PixelMode::kCmyk:
      return 4;
  }
  return 0;
}

/// [height, width, bytes_per_pixel(mode)].
struct RawPicture {
  PixelMode mode = PixelMode::kRgb;
  Size size;
  PixelBuffer bytes;
  std::vector<uint8_t> palette;  ///< 256 times RGB, of kPalette alone

  RawPicture() = default;
  RawPicture(PixelMode pixel_mode, Size pixels)
      : mode(pixel_mode), size(pixels), bytes(pixels.area() * bytes_per_pixel(pixel_mode)) {}
};

enum class Alpha {
  kDropped,  ///< colours that it hides come out, as PIL's convert does
  kOnWhite,  ///< of kRgba alone, as qwen_vl_utils does; of other modes it is dropped
};

/// Converts as PIL does: a palette is expanded without its transparency, and 16-bit grey above 255
/// becomes 255.
Picture to_rgb(RawPicture raw, Alpha alpha);

/// The picture as a viewer turns it by its EXIF orientation (1 … 8).
RawPicture turned_upright(RawPicture raw, int orientation);

}  // namespace danlu::media
