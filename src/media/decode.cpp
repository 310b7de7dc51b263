#include "media/decode.h"

#include "media/media_error.h"
#include "media/media_file.h"
#include "media/plugin.h"
#include "media/stills/decoder.h"

namespace danlu::media {
namespace {

DecodePicture& stills_decoder() {
  static const auto decoder = reinterpret_cast<DecodePicture*>(
      from_media_plugin("libdanlu_stills.so", "danlu_stills_decode",
                        "libjpeg, libpng, libwebp, libwebpdemux, libgif"));
  return *decoder;
}

[[noreturn]] void throw_status(DecodeStatus status, const std::string& name,
                               const std::string& why) {
  switch (status) {
    case DecodeStatus::kTruncated:
      throw MediaError(MediaFault::kTruncated, tr("{}: the file ends within its picture", name),
                       tr("copy or download it again, or drop the row"));
    case DecodeStatus::kUnsupported:
      throw MediaError(MediaFault::kUnsupported,
                       tr("{}: a kind of picture that is not read: {}", name, why),
                       tr("convert it to PNG, JPEG or WebP"));
    case DecodeStatus::kNoMemory:
      throw MemoryError(tr("{}: too little memory for its pixels", name));
    default:
      throw MediaError(MediaFault::kDamaged, tr("{}: damaged picture: {}", name, why),
                       tr("copy or download it again, or drop the row"));
  }
}

RawPicture decoded(std::span<const std::byte> bytes, const PictureSize& size,
                   const std::string& name, bool only_tables) {
  RawPicture raw;
  std::string why;
  const EncodedPicture picture{reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(),
                               size.format, size.stored, only_tables};
  const DecodeStatus status = stills_decoder()(picture, raw, why);
  if (status != DecodeStatus::kDone) throw_status(status, name, why);
  return raw;
}

}  // namespace

void require_jpeg_tables(std::span<const std::byte> bytes, const std::string& name) {
  decoded(bytes, picture_size(bytes, name, kMaxPixels), name, true);
}

RawPicture decode_raw(std::span<const std::byte> bytes, const std::string& name,
                      const DecodeOptions& options) {
  const PictureSize size = picture_size(bytes, name, options.max_pixels);
  RawPicture raw = decoded(bytes, size, name, false);
  if (options.exif == Exif::kIgnore) return raw;
  return turned_upright(std::move(raw), size.orientation);
}

Picture decode_picture(std::span<const std::byte> bytes, const std::string& name,
                       const DecodeOptions& options) {
  return to_rgb(decode_raw(bytes, name, options), Alpha::kDropped);
}

Picture decode_picture(const std::filesystem::path& file, const DecodeOptions& options) {
  const MappedFile map = open_media_file(file);
  return decode_picture(map.bytes(), file.string(), options);
}

}  // namespace danlu::media
