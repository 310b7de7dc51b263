#include "media/picture_size.h"

#include <array>
#include <optional>
#include <string_view>

#include "media/bytes.h"
#include "media/exif.h"
#include "media/media_error.h"
#include "media/media_file.h"

namespace danlu::media {
namespace {

using Bytes = std::span<const std::byte>;

[[noreturn]] void truncated(const std::string& name) {
  throw MediaError(MediaFault::kTruncated, tr("{}: the picture ends within its header", name));
}

[[noreturn]] void damaged(const std::string& name, const std::string& why) {
  throw MediaError(MediaFault::kDamaged, tr("{}: damaged picture: {}", name, why));
}

PictureSize jpeg_size(Bytes bytes, const std::string& name) {
  PictureSize size{PictureFormat::kJpeg, {}};
  size_t at = 2;
  while (true) {
    while (byte_at(bytes, at) == 0xff && byte_at(bytes, at + 1) == 0xff) ++at;
    if (at + 4 > bytes.size()) truncated(name);
    if (byte_at(bytes, at) != 0xff) damaged(name, tr("no marker where one must be"));
    const unsigned marker = byte_at(bytes, at + 1);
    if (marker == 0x01 || (marker >= 0xd0 && marker <= 0xd8)) {
      at += 2;
      continue;
    }
    const size_t length = big16(bytes, at + 2);
    if (marker == 0xda || marker == 0xd9) break;
    const bool is_frame =
        marker >= 0xc0 && marker <= 0xcf && marker != 0xc4 && marker != 0xc8 && marker != 0xcc;
    if (length < (is_frame ? 8u : 2u)) damaged(name, tr("a segment is too short"));
    if (is_frame) {
      if (at + 9 > bytes.size()) truncated(name);
      size.stored = {big16(bytes, at + 7), big16(bytes, at + 5)};
      if (size.stored.height == 0 && size.stored.width > 0) {
        throw MediaError(MediaFault::kUnsupported,
                         tr("{}: a JPEG whose height stands behind its picture", name));
      }
    } else if (marker == 0xe1 && at + 2 + length <= bytes.size()) {
      if (const auto found = exif_orientation(bytes.subspan(at + 4, length - 2), true)) {
        size.orientation = *found;
      }
    }
    at += 2 + length;
  }
  if (size.stored.area() == 0) damaged(name, tr("it has no frame before its first scan"));
  return size;
}

PictureSize png_size(Bytes bytes, const std::string& name) {
  PictureSize size{PictureFormat::kPng, {}};
  if (bytes.size() < 33) truncated(name);
  if (text_at(bytes, 12, 4) != "IHDR") damaged(name, tr("it does not begin with IHDR"));
  size.stored = {big32(bytes, 16), big32(bytes, 20)};
  size.is_grey16 = byte_at(bytes, 24) == 16 && byte_at(bytes, 25) == 0;
  // EXIF may stand after the pixels.
  for (size_t at = 8; at + 12 <= bytes.size();) {
    const size_t length = big32(bytes, at);
    const auto kind = text_at(bytes, at + 4, 4);
    if (kind == "IEND" || length > bytes.size() - at - 12) break;
    if (kind == "eXIf") {
      if (const auto found = exif_orientation(bytes.subspan(at + 8, length), false)) {
        size.orientation = *found;
      }
    }
    at += 12 + length;
  }
  return size;
}

PictureSize webp_size(Bytes bytes, const std::string& name) {
  PictureSize size{PictureFormat::kWebp, {}};
  if (bytes.size() < 30) truncated(name);
  const auto kind = text_at(bytes, 12, 4);
  if (kind == "VP8 ") {
    if (text_at(bytes, 23, 3) != std::string_view("\x9d\x01\x2a", 3)) {
      damaged(name, tr("no key frame where one must be"));
    }
    size.stored = {little16(bytes, 26) & 0x3fff, little16(bytes, 28) & 0x3fff};
  } else if (kind == "VP8L") {
    if (byte_at(bytes, 20) != 0x2f) damaged(name, tr("no key frame where one must be"));
    const uint32_t packed = little32(bytes, 21);
    size.stored = {(packed & 0x3fff) + 1, ((packed >> 14) & 0x3fff) + 1};
  } else if (kind == "VP8X") {
    size.stored = {(little32(bytes, 23) >> 8) + 1, (little32(bytes, 26) >> 8) + 1};
  } else {
    damaged(name, tr("an unknown kind of WebP"));
  }
  for (size_t at = 12; kind == "VP8X" && at + 8 <= bytes.size();) {
    const size_t length = little32(bytes, at + 4);
    if (length > bytes.size() - at - 8) break;
    if (text_at(bytes, at, 4) == "EXIF") {
      if (const auto found = exif_orientation(bytes.subspan(at + 8, length), false)) {
        size.orientation = *found;
      }
    }
    at += 8 + length + length % 2;
  }
  return size;
}

/// Past sub-blocks that end with an empty one.
size_t past_blocks(Bytes bytes, size_t at, const std::string& name) {
  while (true) {
    if (at >= bytes.size()) truncated(name);
    const size_t length = byte_at(bytes, at);
    at += 1 + length;
    if (length == 0) return at;
  }
}

PictureSize gif_size(Bytes bytes, const std::string& name) {
  PictureSize size{PictureFormat::kGif, {}};
  if (bytes.size() < 13) truncated(name);
  size.stored = {little16(bytes, 6), little16(bytes, 8)};
  const unsigned flags = byte_at(bytes, 10);
  size_t at = 13;
  if (flags & 0x80) at += size_t{3} << ((flags & 7) + 1);
  while (true) {
    if (at + 2 > bytes.size()) truncated(name);
    const unsigned block = byte_at(bytes, at);
    if (block == 0x21) {
      at = past_blocks(bytes, at + 2, name);
    } else if (block == 0x2c) {
      if (at + 10 > bytes.size()) truncated(name);
      // A first frame that reaches out of the canvas makes it larger.
      size.stored.width = std::max<int64_t>(
          size.stored.width, little16(bytes, at + 1) + int64_t{little16(bytes, at + 5)});
      size.stored.height = std::max<int64_t>(
          size.stored.height, little16(bytes, at + 3) + int64_t{little16(bytes, at + 7)});
      return size;
    } else if (block == 0x3b) {
      damaged(name, tr("it has no frame"));
    } else {
      ++at;
    }
  }
}

/// A format that is known by name only; nullptr: none.
const char* foreign_format(Bytes bytes) {
  if (text_at(bytes, 0, 2) == "BM") return "BMP";
  if (text_at(bytes, 0, 4) == std::string_view("II*\0", 4) ||
      text_at(bytes, 0, 4) == std::string_view("MM\0*", 4)) {
    return "TIFF";
  }
  if (text_at(bytes, 4, 4) == "ftyp") {
    const auto brand = text_at(bytes, 8, 4);
    if (brand == "avif" || brand == "avis") return "AVIF";
    if (brand == "heic" || brand == "heix" || brand == "mif1" || brand == "hevc") return "HEIC";
    return "MP4";
  }
  if (text_at(bytes, 0, 4) == "%PDF") return "PDF";
  if (text_at(bytes, 0, 4) == "<svg" || text_at(bytes, 0, 5) == "<?xml") return "SVG";
  if (text_at(bytes, 0, 12) == std::string_view("\0\0\0\x0cjP  \r\n\x87\n", 12)) return "JPEG 2000";
  return nullptr;
}

PictureSize size_by_format(Bytes bytes, const std::string& name) {
  if (text_at(bytes, 0, 3) == "\xff\xd8\xff") return jpeg_size(bytes, name);
  if (text_at(bytes, 0, 8) == "\x89PNG\r\n\x1a\n") return png_size(bytes, name);
  if (text_at(bytes, 0, 4) == "RIFF" && text_at(bytes, 8, 4) == "WEBP")
    return webp_size(bytes, name);
  if (text_at(bytes, 0, 6) == "GIF87a" || text_at(bytes, 0, 6) == "GIF89a") {
    return gif_size(bytes, name);
  }
  if (const char* format = foreign_format(bytes)) {
    throw MediaError(MediaFault::kUnsupported, tr("{}: {} is not read as a picture", name, format),
                     tr("convert it to PNG, JPEG or WebP"));
  }
  throw MediaError(MediaFault::kNotAPicture, bytes.empty()
                                                 ? tr("{}: an empty file", name)
                                                 : tr("{}: neither JPEG, PNG, WebP nor GIF", name));
}

}  // namespace

PictureSize picture_size(Bytes bytes, const std::string& name, int64_t max_pixels) {
  const PictureSize size = size_by_format(bytes, name);
  const auto [width, height] = size.stored;
  if (width <= 0 || height <= 0 || width > INT32_MAX || height > INT32_MAX) {
    damaged(name, tr("{} x {} pixels", width, height));
  }
  if (size.stored.area() > max_pixels) {
    throw MediaError(
        MediaFault::kTooLarge,
        tr("{}: {} x {} pixels, above the limit of {}", name, width, height, max_pixels),
        tr("such files are made to fill memory; make a smaller picture of it"));
  }
  return size;
}

PictureSize picture_size(const std::filesystem::path& file, int64_t max_pixels) {
  const MappedFile map = open_media_file(file);
  return picture_size(map.bytes(), file.string(), max_pixels);
}

}  // namespace danlu::media
