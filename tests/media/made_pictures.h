// tests/media/made_pictures.h: picture files that tests make themselves.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "media/raw_picture.h"

namespace danlu::media::made {

/// A gradient with noise; the same for the same size.
Picture noise(Size size, uint32_t seed = 1);

struct PngKind {
  int depth = 8;
  int colour_type = 2;  ///< as in IHDR: 0 grey, 2 RGB, 3 palette, 4 grey and alpha, 6 RGBA
  bool interlaced = false;
  bool transparent_colour = false;  ///< a tRNS chunk
  std::string exif = {};            ///< an eXIf chunk behind the pixels
};
/// `value(x, y, channel)`: of the depth's range.
std::string png(Size size, const PngKind& kind,
                const std::function<uint32_t(int64_t, int64_t, int64_t)>& value);
std::string png(const Picture& picture);

/// The header of a PNG of any size, and nothing behind it.
std::string png_header(uint32_t width, uint32_t height);

struct JpegKind {
  int channels = 3;  ///< 1 grey, 3 YCbCr of RGB, 4 CMYK as it is (inverted by its makers)
  bool progressive = false;
  std::string exif = {};  ///< an APP1 segment
};
/// From [height, width, channels] bytes.
std::string jpeg(Size size, const std::vector<uint8_t>& bytes, const JpegKind& kind = {});
std::string jpeg(const Picture& picture, const JpegKind& kind = {});

/// Lossless.
std::string webp(const Picture& picture);

/// Two frames: the first covers `frame` at (left, top) of the canvas, by four colours.
struct GifKind {
  Size canvas, frame;
  int left = 0, top = 0;
  int transparent = -1;
  bool interlaced = false;
};
std::string gif(const GifKind& kind, const std::vector<uint8_t>& indices);

/// "Exif\0\0" and a directory that holds the orientation alone.
std::string exif(int orientation, bool little_endian, bool with_prefix);

}  // namespace danlu::media::made
