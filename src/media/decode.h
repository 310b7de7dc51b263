// media/decode.h: picture files and bytes to pixels.
#pragma once
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

#include "media/picture_size.h"
#include "media/raw_picture.h"

namespace danlu::media {

/// What EXIF says of how the camera was held.
enum class Exif {
  kTranspose,  ///< the picture is turned upright
  kIgnore,     ///< as the loaders of most training tools do: it stays as it lies in the file
};

struct DecodeOptions {
  Exif exif = Exif::kTranspose;
  int64_t max_pixels = kMaxPixels;  ///< checked before anything is decoded
};

/// JPEG, PNG, WebP (first frame) and GIF (first frame), equal to what PIL opens. `name` stands in
/// errors. Opens libdanlu_stills.so at the first call. Thread-safe.
/// Errors: as picture_size; MediaError kTruncated, kDamaged, kUnsupported; MemoryError; DeviceError
/// if the library cannot be opened.
RawPicture decode_raw(std::span<const std::byte> bytes, const std::string& name,
                      const DecodeOptions& options = {});

/// Reads what stands before the pixels of a JPEG, which costs little: its tables are such as
/// decode_raw takes. Errors: as decode_raw. REQUIRES: a JPEG.
void require_jpeg_tables(std::span<const std::byte> bytes, const std::string& name);

/// The same as RGB; alpha is dropped. Errors: as decode_raw.
Picture decode_picture(std::span<const std::byte> bytes, const std::string& name,
                       const DecodeOptions& options = {});
/// Errors: also MediaError kMissing.
Picture decode_picture(const std::filesystem::path& file, const DecodeOptions& options = {});

}  // namespace danlu::media
