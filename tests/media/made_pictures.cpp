#include "media/made_pictures.h"

#include <gif_lib.h>
#include <jpeglib.h>
#include <png.h>
#include <webp/encode.h>
#include <zlib.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace danlu::media::made {
namespace {

std::string word_text(uint32_t value, int num_bytes, bool little_endian) {
  std::string text;
  for (int i = 0; i < num_bytes; ++i) {
    text += static_cast<char>(value >> (8 * (little_endian ? i : num_bytes - 1 - i)));
  }
  return text;
}

}  // namespace

Picture noise(Size size, uint32_t seed) {
  Picture picture(size);
  uint32_t state = seed * 2654435761u + 1;
  for (int64_t i = 0; i < picture.rgb.size(); ++i) {
    state = state * 1664525u + 1013904223u;
    const int64_t x = i / 3 % size.width, y = i / 3 / size.width;
    picture.rgb.data()[i] =
        static_cast<uint8_t>((state >> 24) % 97 + (x * 3 + y * 5 + i % 3 * 40) % 150);
  }
  return picture;
}

std::string png(Size size, const PngKind& kind,
                const std::function<uint32_t(int64_t, int64_t, int64_t)>& value) {
  std::string out;
  png_structp writer = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(writer);
  png_set_write_fn(
      writer, &out,
      [](png_structp png, png_bytep bytes, size_t count) {
        static_cast<std::string*>(png_get_io_ptr(png))
            ->append(reinterpret_cast<char*>(bytes), count);
      },
      nullptr);
  png_set_IHDR(writer, info, static_cast<uint32_t>(size.width), static_cast<uint32_t>(size.height),
               kind.depth, kind.colour_type,
               kind.interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  if (kind.colour_type == PNG_COLOR_TYPE_PALETTE) {
    std::vector<png_color> palette(size_t{1} << kind.depth);
    for (size_t i = 0; i < palette.size(); ++i) {
      palette[i] = {static_cast<png_byte>(i * 7), static_cast<png_byte>(255 - i),
                    static_cast<png_byte>(i * 3 + 1)};
    }
    png_set_PLTE(writer, info, palette.data(), static_cast<int>(palette.size()));
  }
  if (kind.transparent_colour) {
    png_color_16 colour{};
    const png_byte alpha[] = {0, 128};
    png_set_tRNS(writer, info, alpha, 2, &colour);
  }
  const int channels = kind.colour_type == 0 || kind.colour_type == 3 ? 1
                       : kind.colour_type == 4                        ? 2
                       : kind.colour_type == 2                        ? 3
                                                                      : 4;
  const auto row_bytes = static_cast<size_t>((size.width * channels * kind.depth + 7) / 8);
  std::vector<std::vector<png_byte>> rows;
  std::vector<png_bytep> pointers;
  for (int64_t y = 0; y < size.height; ++y) {
    auto& row = rows.emplace_back(row_bytes, png_byte{0});
    for (int64_t i = 0; i < size.width * channels; ++i) {
      const uint32_t v = value(i / channels, y, i % channels);
      const auto bit = static_cast<size_t>(i * kind.depth);
      if (kind.depth == 16) {
        row[bit / 8] = static_cast<png_byte>(v >> 8);
        row[bit / 8 + 1] = static_cast<png_byte>(v);
      } else {
        row[bit / 8] |= static_cast<png_byte>(v << (8 - kind.depth - static_cast<int>(bit % 8)));
      }
    }
  }
  for (auto& row : rows) pointers.push_back(row.data());
  png_write_info(writer, info);
  png_write_image(writer, pointers.data());
  std::string exif_bytes = kind.exif;
  if (!exif_bytes.empty()) {
    png_write_chunk(writer, reinterpret_cast<png_const_bytep>("eXIf"),
                    reinterpret_cast<png_const_bytep>(exif_bytes.data()), exif_bytes.size());
  }
  png_write_end(writer, nullptr);
  png_destroy_write_struct(&writer, &info);
  return out;
}

std::string png(const Picture& picture) {
  return png(picture.size, {}, [&](int64_t x, int64_t y, int64_t c) {
    return picture.rgb.data()[(y * picture.size.width + x) * 3 + c];
  });
}

std::string png_header(uint32_t width, uint32_t height) {
  std::string header = "\x89PNG\r\n\x1a\n" + word_text(13, 4, false) + "IHDR" +
                       word_text(width, 4, false) + word_text(height, 4, false);
  header += std::string("\x08\x02\0\0\0", 5);
  header += word_text(static_cast<uint32_t>(
                          crc32(0, reinterpret_cast<const unsigned char*>(header.data()) + 12, 17)),
                      4, false);
  return header + word_text(0x7fff, 4, false) + "IDAT";
}

std::string jpeg(Size size, const std::vector<uint8_t>& bytes, const JpegKind& kind) {
  jpeg_compress_struct writer{};
  jpeg_error_mgr errors{};
  writer.err = jpeg_std_error(&errors);
  jpeg_create_compress(&writer);
  unsigned char* out = nullptr;
  unsigned long out_bytes = 0;
  jpeg_mem_dest(&writer, &out, &out_bytes);
  writer.image_width = static_cast<JDIMENSION>(size.width);
  writer.image_height = static_cast<JDIMENSION>(size.height);
  writer.input_components = kind.channels;
  writer.in_color_space = kind.channels == 1   ? JCS_GRAYSCALE
                          : kind.channels == 3 ? JCS_RGB
                                               : JCS_CMYK;
  jpeg_set_defaults(&writer);
  jpeg_set_quality(&writer, 95, TRUE);
  if (kind.progressive) jpeg_simple_progression(&writer);
  jpeg_start_compress(&writer, TRUE);
  if (!kind.exif.empty()) {
    jpeg_write_marker(&writer, JPEG_APP0 + 1, reinterpret_cast<const JOCTET*>(kind.exif.data()),
                      static_cast<unsigned>(kind.exif.size()));
  }
  const auto row_bytes = static_cast<size_t>(size.width * kind.channels);
  while (writer.next_scanline < writer.image_height) {
    auto* row = const_cast<JSAMPROW>(bytes.data() + writer.next_scanline * row_bytes);
    jpeg_write_scanlines(&writer, &row, 1);
  }
  jpeg_finish_compress(&writer);
  jpeg_destroy_compress(&writer);
  std::string text(reinterpret_cast<char*>(out), out_bytes);
  std::free(out);
  return text;
}

std::string jpeg(const Picture& picture, const JpegKind& kind) {
  return jpeg(picture.size, {picture.rgb.data(), picture.rgb.data() + picture.rgb.size()}, kind);
}

std::string webp(const Picture& picture) {
  uint8_t* out = nullptr;
  const size_t count = WebPEncodeLosslessRGB(
      picture.rgb.data(), static_cast<int>(picture.size.width),
      static_cast<int>(picture.size.height), static_cast<int>(picture.size.width * 3), &out);
  std::string text(reinterpret_cast<char*>(out), count);
  WebPFree(out);
  return text;
}

std::string gif(const GifKind& kind, const std::vector<uint8_t>& indices) {
  std::string out;
  int error = 0;
  GifFileType* writer = EGifOpen(
      &out,
      [](GifFileType* file, const GifByteType* bytes, int count) {
        static_cast<std::string*>(file->UserData)
            ->append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(count));
        return count;
      },
      &error);
  GifColorType colours[4] = {{10, 20, 30}, {200, 0, 0}, {0, 200, 0}, {0, 0, 200}};
  ColorMapObject* map = GifMakeMapObject(4, colours);
  EGifSetGifVersion(writer, true);
  EGifPutScreenDesc(writer, static_cast<int>(kind.canvas.width),
                    static_cast<int>(kind.canvas.height), 2, 0, map);
  for (int frame = 0; frame < 2; ++frame) {
    if (kind.transparent >= 0) {
      const GraphicsControlBlock control{0, false, 5, kind.transparent};
      GifByteType packed[4];
      EGifGCBToExtension(&control, packed);
      EGifPutExtension(writer, GRAPHICS_EXT_FUNC_CODE, 4, packed);
    }
    const int width = static_cast<int>(kind.frame.width),
              height = static_cast<int>(kind.frame.height);
    EGifPutImageDesc(writer, kind.left, kind.top, width, height, kind.interlaced, nullptr);
    static constexpr int kStarts[] = {0, 4, 2, 1}, kSteps[] = {8, 8, 4, 2};
    for (int pass = 0; pass < (kind.interlaced ? 4 : 1); ++pass) {
      const int step = kind.interlaced ? kSteps[pass] : 1;
      for (int y = kind.interlaced ? kStarts[pass] : 0; y < height; y += step) {
        std::vector<GifPixelType> row(indices.begin() + y * width,
                                      indices.begin() + (y + 1) * width);
        if (frame == 1) row.assign(row.size(), 3);
        EGifPutLine(writer, row.data(), width);
      }
    }
  }
  EGifCloseFile(writer, &error);
  GifFreeMapObject(map);
  return out;
}

std::string exif(int orientation, bool little_endian, bool with_prefix) {
  const auto word = [&](uint32_t value, int num_bytes) {
    return word_text(value, num_bytes, little_endian);
  };
  std::string text = with_prefix ? std::string("Exif\0\0", 6) : "";
  text += (little_endian ? "II" : "MM") + word(42, 2) + word(8, 4);
  text += word(1, 2) + word(0x0112, 2) + word(3, 2) + word(1, 4) +
          word(static_cast<uint32_t>(orientation), 2) + word(0, 2) + word(0, 4);
  return text;
}

}  // namespace danlu::media::made
