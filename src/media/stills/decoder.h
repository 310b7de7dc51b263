// media/stills/decoder.h: what libdanlu_stills.so does: pictures decoded by libjpeg, libpng,
// libwebp and giflib. It throws nothing, and calls nothing of the program.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "media/picture_size.h"
#include "media/raw_picture.h"

namespace danlu::media {

enum class DecodeStatus { kDone, kTruncated, kDamaged, kTooLarge, kUnsupported, kNoMemory };

struct EncodedPicture {
  const uint8_t* bytes = nullptr;
  size_t num_bytes = 0;
  PictureFormat format = PictureFormat::kPng;
  Size size;  ///< by picture_size(); a decoder that finds another one says kDamaged
  /// Only what stands before a JPEG's pixels is read (where it has several scans: all of them), and
  /// `out` stays empty.
  bool only_tables = false;
};

/// What danlu_stills_decode is. Unless it is kDone, `why` holds the library's words (English) and
/// `out` nothing of use.
using DecodePicture = DecodeStatus(const EncodedPicture& picture, RawPicture& out,
                                   std::string& why);

}  // namespace danlu::media
