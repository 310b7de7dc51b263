// media/picture_size.h: what the header of a picture file says, without decoding it and without the
// libraries that decode.
#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "media/smart_resize.h"

namespace danlu::media {

enum class PictureFormat { kJpeg, kPng, kWebp, kGif };

/// Pictures with more pixels are refused: twice the number above which PIL warns.
inline constexpr int64_t kMaxPixels = int64_t{2} * 89478485;

struct PictureSize {
  PictureFormat format = PictureFormat::kPng;
  Size stored;             ///< pixels, as they lie in the file
  int orientation = 1;     ///< of EXIF, 1 … 8; 1 where the file says none or nonsense
  bool is_grey16 = false;  ///< of a PNG: what is above 255 of 65535 comes out white
  /// As a viewer shows it: from 5 on the orientation exchanges the sides.
  Size upright() const { return orientation >= 5 ? Size{stored.height, stored.width} : stored; }
};

/// `name` stands in errors. The format is found in the bytes, not in a file's name.
/// Errors: MediaError kTruncated, kNotAPicture, kUnsupported (TIFF, BMP, HEIC, AVIF, …), kDamaged,
/// and kTooLarge above max_pixels.
PictureSize picture_size(std::span<const std::byte> bytes, const std::string& name,
                         int64_t max_pixels = kMaxPixels);

/// The same from a file. Only the pages that are looked at are read.
/// Errors: as above; MediaError kMissing if it cannot be opened or is no regular file.
PictureSize picture_size(const std::filesystem::path& file, int64_t max_pixels = kMaxPixels);

}  // namespace danlu::media
