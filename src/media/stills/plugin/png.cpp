#include <png.h>

#include <algorithm>
#include <bit>
#include <csetjmp>
#include <cstdint>
#include <cstring>
#include <vector>

#include "media/stills/plugin/formats.h"

namespace danlu::media {
namespace {

/// libpng leaves its calls by longjmp: no frame between setjmp and it has anything to destroy.
struct PngReader {
  png_structp png = nullptr;
  png_infop info = nullptr;
  const uint8_t* next = nullptr;
  size_t left = 0;
  /// How much of the file may be read on: behind the last row libpng inflates all that follows.
  size_t most = SIZE_MAX;
  int passes = 1;
  DecodeStatus status = DecodeStatus::kDone;
  char why[128] = "";

  ~PngReader() { png_destroy_read_struct(&png, &info, nullptr); }
};

[[noreturn]] void leave_png(png_structp png, png_const_charp message) {
  auto& reader = *static_cast<PngReader*>(png_get_error_ptr(png));
  std::strncpy(reader.why, message, sizeof reader.why - 1);
  if (reader.status == DecodeStatus::kDone) {
    const bool short_data = std::strstr(message, "Not enough") != nullptr;
    reader.status = std::strstr(message, "memory") ? DecodeStatus::kNoMemory
                    : short_data                   ? DecodeStatus::kTruncated
                                                   : DecodeStatus::kDamaged;
  }
  png_longjmp(png, 1);
}

void give_bytes(png_structp png, png_bytep to, size_t count) {
  auto& reader = *static_cast<PngReader*>(png_get_io_ptr(png));
  if (count > reader.left) {
    reader.status = DecodeStatus::kTruncated;
    png_error(png, "the file ends too early");
  }
  if (count > reader.most) {
    reader.status = DecodeStatus::kDamaged;
    png_error(png, "it holds more than its pixels");
  }
  reader.most -= reader.most == SIZE_MAX ? 0 : count;
  std::memcpy(to, reader.next, count);
  reader.next += count;
  reader.left -= count;
}

bool read_png_header(PngReader& reader) {
  if (setjmp(png_jmpbuf(reader.png))) return false;
  png_set_read_fn(reader.png, &reader, give_bytes);
  png_set_user_limits(reader.png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
  // Profiles, texts and gamma change no pixel here.
  png_set_keep_unknown_chunks(reader.png, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
  png_read_info(reader.png, reader.info);
  const int kind = png_get_color_type(reader.png, reader.info);
  const int depth = png_get_bit_depth(reader.png, reader.info);
  if (kind == PNG_COLOR_TYPE_GRAY && depth < 8) png_set_expand_gray_1_2_4_to_8(reader.png);
  if (kind == PNG_COLOR_TYPE_PALETTE && depth < 8) png_set_packing(reader.png);
  if (depth == 16 && kind == PNG_COLOR_TYPE_GRAY) {
    if (std::endian::native == std::endian::little) png_set_swap(reader.png);
  } else if (depth == 16) {
    png_set_strip_16(reader.png);
    if (kind == PNG_COLOR_TYPE_GRAY_ALPHA) png_set_gray_to_rgb(reader.png);
  }
  reader.passes = png_set_interlace_handling(reader.png);
  png_read_update_info(reader.png, reader.info);
  return true;
}

bool read_png_rows(PngReader& reader, uint8_t* out, int64_t height, size_t row_bytes) {
  if (setjmp(png_jmpbuf(reader.png))) return false;
  constexpr size_t kRest = 64 << 10;  // ends of blocks and chunks, and some that makers leave
  for (int pass = 0; pass < reader.passes; ++pass) {
    for (int64_t y = 0; y < height; ++y) {
      if (pass + 1 == reader.passes && y + 1 == height) reader.most = 2 * row_bytes + kRest;
      png_read_row(reader.png, out + static_cast<size_t>(y) * row_bytes, nullptr);
    }
  }
  return true;
}

PixelMode png_mode(const PngReader& reader, const EncodedPicture& picture) {
  // What the file says: libpng already speaks of what it will give.
  constexpr size_t kDepth = 24, kKind = 25;
  const int depth = picture.bytes[kDepth];
  switch (picture.bytes[kKind]) {
    case PNG_COLOR_TYPE_GRAY:
      return depth == 1 ? PixelMode::kBilevel : depth == 16 ? PixelMode::kGrey16 : PixelMode::kGrey;
    case PNG_COLOR_TYPE_PALETTE:
      return PixelMode::kPalette;
    case PNG_COLOR_TYPE_GRAY_ALPHA:
      return depth == 16 ? PixelMode::kRgba : PixelMode::kGreyAlpha;
    case PNG_COLOR_TYPE_RGB:
      return PixelMode::kRgb;
    default:
      return PixelMode::kRgba;
  }
}

std::vector<uint8_t> png_palette(const PngReader& reader) {
  std::vector<uint8_t> palette(3 * 256, 0);
  png_colorp colours = nullptr;
  int count = 0;
  png_get_PLTE(reader.png, reader.info, &colours, &count);
  for (int i = 0; i < std::min(count, 256); ++i) {
    palette[3 * static_cast<size_t>(i)] = colours[i].red;
    palette[3 * static_cast<size_t>(i) + 1] = colours[i].green;
    palette[3 * static_cast<size_t>(i) + 2] = colours[i].blue;
  }
  return palette;
}

}  // namespace

DecodeStatus decode_png(const EncodedPicture& picture, RawPicture& out, std::string& why) {
  PngReader reader;
  reader.next = picture.bytes;
  reader.left = picture.num_bytes;
  reader.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &reader, leave_png,
                                      [](png_structp, png_const_charp) {});
  reader.info = reader.png ? png_create_info_struct(reader.png) : nullptr;
  if (!reader.info) return DecodeStatus::kNoMemory;
  if (read_png_header(reader)) {
    const PixelMode mode = png_mode(reader, picture);
    const Size size{png_get_image_width(reader.png, reader.info),
                    png_get_image_height(reader.png, reader.info)};
    const auto row_bytes = static_cast<size_t>(size.width * bytes_per_pixel(mode));
    if (size != picture.size || png_get_rowbytes(reader.png, reader.info) != row_bytes) {
      why = "its header contradicts itself";
      return DecodeStatus::kDamaged;
    }
    out = RawPicture(mode, size);
    if (mode == PixelMode::kPalette) out.palette = png_palette(reader);
    read_png_rows(reader, out.bytes.data(), size.height, row_bytes);
  }
  why = reader.why;
  return reader.status;
}

}  // namespace danlu::media
