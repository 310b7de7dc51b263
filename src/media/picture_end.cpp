#include "media/picture_end.h"

#include <libdeflate.h>

#include "media/bytes.h"
#include "media/decode.h"
#include "media/media_error.h"

namespace danlu::media {
namespace {

using FileBytes = std::span<const std::byte>;

/// Where the first scan begins; 0 if none is found. is_plain: sequential, with Huffman's codes.
size_t first_scan(FileBytes bytes, bool* is_plain) {
  *is_plain = false;
  for (size_t at = 2; at + 4 <= bytes.size();) {
    if (byte_at(bytes, at) != 0xff) return 0;
    const uint32_t marker = byte_at(bytes, at + 1);
    if (marker == 0xda) return at;
    if (marker == 0xc0 || marker == 0xc1) *is_plain = true;
    const bool stands_alone =
        marker == 0xff || marker == 0x01 || (marker >= 0xd0 && marker <= 0xd8);
    at += marker == 0xff ? 1 : stands_alone ? 2 : 2 + big16(bytes, at + 2);
  }
  return 0;
}

/// Pixels hold no end marker: a byte 0xff is followed by 0 there. After the end other things may
/// stand.
bool jpeg_is_whole(FileBytes bytes) {
  bool is_plain = false;
  const size_t begin = first_scan(bytes, &is_plain);
  if (begin == 0) return false;
  for (size_t at = bytes.size(); at >= begin + 2; --at) {
    if (byte_at(bytes, at - 1) == 0xd9 && byte_at(bytes, at - 2) == 0xff) return true;
  }
  return false;
}

bool png_is_whole(FileBytes bytes) {
  for (size_t at = 8; at + 12 <= bytes.size();) {
    const size_t length = big32(bytes, at);
    if (length > bytes.size() - at - 12) return false;
    if (text_at(bytes, at + 4, 4) == "IEND") return true;
    at += 12 + length;
  }
  return false;
}

/// Errors: MediaError if a checksum is not that of its chunk. REQUIRES: png_is_whole.
void require_png_checksums(FileBytes bytes, const std::string& name) {
  for (size_t at = 8;; at += 12 + big32(bytes, at)) {
    const size_t length = big32(bytes, at);
    const std::string_view kind = text_at(bytes, at + 4, 4);
    if (libdeflate_crc32(0, bytes.data() + at + 4, length + 4) != big32(bytes, at + 8 + length)) {
      throw MediaError(MediaFault::kDamaged,
                       tr("{}: damaged picture: the checksum of {} is wrong", name, kind));
    }
    if (kind == "IEND") return;
  }
}

bool webp_is_whole(FileBytes bytes) { return little32(bytes, 4) <= bytes.size() - 8; }

bool gif_is_whole(FileBytes bytes) {
  size_t at = 13;
  const auto past_table = [&](uint32_t flags) {
    if (flags & 0x80) at += size_t{3} << ((flags & 7) + 1);
  };
  const auto past_blocks = [&] {
    while (at < bytes.size()) {
      const size_t length = byte_at(bytes, at);
      at += 1 + length;
      if (length == 0) return true;
    }
    return false;
  };
  past_table(byte_at(bytes, 10));
  while (at < bytes.size()) {
    const uint32_t block = byte_at(bytes, at);
    if (block == 0x2c) {
      const uint32_t flags = byte_at(bytes, at + 9);
      at += 10;
      past_table(flags);
      ++at;  // the size of codes
      return past_blocks();
    }
    at += block == 0x21 ? 2 : 1;
    if (block == 0x21 && !past_blocks()) return false;
  }
  return false;
}

bool is_whole(FileBytes bytes, PictureFormat format) {
  switch (format) {
    case PictureFormat::kJpeg:
      return jpeg_is_whole(bytes);
    case PictureFormat::kPng:
      return png_is_whole(bytes);
    case PictureFormat::kWebp:
      return webp_is_whole(bytes);
    case PictureFormat::kGif:
      return gif_is_whole(bytes);
  }
  return true;
}

}  // namespace

void require_whole_picture(FileBytes bytes, PictureFormat format, const std::string& name) {
  if (!is_whole(bytes, format))
    throw MediaError(MediaFault::kTruncated, tr("{}: the end of the picture is missing", name));
  if (format == PictureFormat::kPng) require_png_checksums(bytes, name);
  bool is_plain = false;
  if (format == PictureFormat::kJpeg) first_scan(bytes, &is_plain);
  if (is_plain) return require_jpeg_tables(bytes, name);
  decode_raw(bytes, name, {.exif = Exif::kIgnore});
}

}  // namespace danlu::media
