// media/resize.h: resizing equal to PIL's Image.resize, bit for bit.
#pragma once
#include <cstdint>

#include "media/processor.h"
#include "media/raw_picture.h"

namespace danlu::media {

/// `from`: bytes [size.height, size.width, channels], 1 to 4 channels. kBicubic widens its support
/// where it shrinks (antialias), goes along rows first, rounds to 8 bits after each direction.
/// REQUIRES: sides of both sizes > 0.
PixelBuffer resized_bytes(const PixelBuffer& from, Size size, int64_t channels, Size to,
                          Filter filter);

Picture resized(const Picture& picture, Size to, Filter filter);

/// A picture that is not RGB yet. As PIL does, palettes and bilevel pictures are always resized by
/// nearest, colours weigh by their alpha, and grey of 16 bits keeps its bits.
RawPicture resized(RawPicture raw, Size to, Filter filter);

}  // namespace danlu::media
