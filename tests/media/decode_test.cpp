// Decoders and headers, on picture files that the tests make.
#include "media/decode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <fstream>

#include "media/exif.h"
#include "media/made_pictures.h"
#include "media/media_error.h"
#include "support/temporary_directory.h"
#include "support/throws.h"

namespace danlu::media {
namespace {

using testing::HasSubstr;
using Bytes = std::vector<uint8_t>;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

Bytes content(const PixelBuffer& buffer) { return {buffer.data(), buffer.data() + buffer.size()}; }

Picture decoded(const std::string& file) { return decode_picture(bytes_of(file), "made"); }

MediaFault fault_of(const std::string& file, int64_t max_pixels = kMaxPixels) {
  try {
    decode_picture(bytes_of(file), "made", {Exif::kTranspose, max_pixels});
  } catch (const MediaError& error) {
    EXPECT_THAT(error.what(), HasSubstr("made"));
    return error.fault();
  }
  ADD_FAILURE() << "it is accepted";
  return MediaFault::kMissing;
}

/// RGB of one pixel.
std::vector<int> pixel(const Picture& picture, int64_t x, int64_t y) {
  const uint8_t* at = picture.rgb.data() + (y * picture.size.width + x) * 3;
  return {at[0], at[1], at[2]};
}

constexpr Size kSize{13, 7};

TEST(DecodePng, EveryKindGivesTheColoursOfPil) {
  using Rgb = std::vector<int>;
  struct Case {
    made::PngKind kind;
    uint32_t value;
    PixelMode mode;
    Rgb wanted;
  };
  // One value in all channels; grey below 8 bits is spread over 0 … 255, 16 bits keep the upper
  // byte, but grey of 16 bits is cut at 255.
  const Case cases[] = {
      {{1, 0}, 1, PixelMode::kBilevel, {255, 255, 255}},
      {{2, 0}, 2, PixelMode::kGrey, {170, 170, 170}},
      {{4, 0}, 9, PixelMode::kGrey, {153, 153, 153}},
      {{8, 0}, 77, PixelMode::kGrey, {77, 77, 77}},
      {{16, 0}, 77, PixelMode::kGrey16, {77, 77, 77}},
      {{16, 0}, 256, PixelMode::kGrey16, {255, 255, 255}},
      {{8, 2}, 99, PixelMode::kRgb, {99, 99, 99}},
      {{16, 2}, 0x12ff, PixelMode::kRgb, {0x12, 0x12, 0x12}},
      {{1, 3}, 1, PixelMode::kPalette, {7, 254, 4}},
      {{2, 3}, 3, PixelMode::kPalette, {21, 252, 10}},
      {{4, 3}, 15, PixelMode::kPalette, {105, 240, 46}},
      {{8, 3}, 30, PixelMode::kPalette, {210, 225, 91}},
      {{8, 4}, 50, PixelMode::kGreyAlpha, {50, 50, 50}},
      {{16, 4}, 0x3344, PixelMode::kRgba, {0x33, 0x33, 0x33}},
      {{8, 6}, 60, PixelMode::kRgba, {60, 60, 60}},
      {{16, 6}, 0x4455, PixelMode::kRgba, {0x44, 0x44, 0x44}},
  };
  for (Case one : cases) {
    for (const bool interlaced : {false, true}) {
      for (const bool transparent : {false, true}) {
        one.kind.interlaced = interlaced;
        one.kind.transparent_colour = transparent && one.kind.colour_type < 4;
        const std::string file = made::png(kSize, one.kind, [&](int64_t x, int64_t y, int64_t) {
          return x == 3 && y == 5 ? one.value : 0u;
        });
        SCOPED_TRACE("depth " + std::to_string(one.kind.depth) + " type " +
                     std::to_string(one.kind.colour_type));
        EXPECT_EQ(decode_raw(bytes_of(file), "made").mode, one.mode);
        const Picture picture = decoded(file);
        EXPECT_EQ(picture.size, kSize);
        EXPECT_EQ(pixel(picture, 3, 5), one.wanted);
        EXPECT_EQ(pixel(picture, 4, 5),
                  one.kind.colour_type == 3 ? (Rgb{0, 255, 1}) : (Rgb{0, 0, 0}));
      }
    }
  }
}

TEST(DecodePng, IsExact) {
  const Picture picture = made::noise({61, 40});
  EXPECT_EQ(content(decoded(made::png(picture)).rgb), content(picture.rgb));
}

TEST(DecodePng, AlphaIsDroppedOrLaidOnWhite) {
  const std::string file = made::png(kSize, {8, 6}, [](int64_t x, int64_t, int64_t c) {
    return c == 3 ? static_cast<uint32_t>(x * 20) : 100u;
  });
  EXPECT_EQ(pixel(decoded(file), 0, 0), (std::vector{100, 100, 100}));
  const Picture white = to_rgb(decode_raw(bytes_of(file), "made"), Alpha::kOnWhite);
  EXPECT_EQ(pixel(white, 0, 0), (std::vector{255, 255, 255}));
  // 255 · (1 − 120/255) + 100 · 120/255 = 182.06
  EXPECT_EQ(pixel(white, 6, 0), (std::vector{182, 182, 182}));
}

TEST(DecodeJpeg, BaselineAndProgressiveAreNear) {
  Picture flat({50, 34});
  for (int64_t i = 0; i < flat.rgb.size(); ++i) {
    flat.rgb.data()[i] = static_cast<uint8_t>(40 + i % 3 * 60 + i / 3 % 50);
  }
  for (const bool progressive : {false, true}) {
    const Picture picture = decoded(made::jpeg(flat, {3, progressive}));
    ASSERT_EQ(picture.size, flat.size);
    for (int64_t i = 0; i < flat.rgb.size(); ++i) {
      ASSERT_NEAR(picture.rgb.data()[i], flat.rgb.data()[i], 8) << i;
    }
  }
}

TEST(DecodeJpeg, GreyIsRepeatedAndInkIsTakenFromWhite) {
  const auto grey = decoded(made::jpeg(kSize, Bytes(13 * 7, 90), {1}));
  EXPECT_EQ(pixel(grey, 4, 4), (std::vector{90, 90, 90}));
  Bytes ink;
  // Stored inverted: cyan 55, magenta 0, yellow 155, black 51 of 255.
  for (int i = 0; i < 13 * 7; ++i) ink.insert(ink.end(), {200, 255, 100, 204});
  const auto colour = pixel(decoded(made::jpeg(kSize, ink, {4})), 4, 4);
  // White is 204; 204 − 55·204/255 = 160, 204, 204 − 155·204/255 = 80.
  EXPECT_NEAR(colour[0], 160, 1);
  EXPECT_NEAR(colour[1], 204, 1);
  EXPECT_NEAR(colour[2], 80, 1);
}

TEST(DecodeWebp, IsExactWithoutLoss) {
  const Picture picture = made::noise({33, 21});
  EXPECT_EQ(content(decoded(made::webp(picture)).rgb), content(picture.rgb));
}

TEST(DecodeGif, TheFirstFrameLiesOnItsCanvas) {
  Bytes indices;
  for (int i = 0; i < 5 * 12; ++i) indices.push_back(static_cast<uint8_t>(i / 5 % 2 + 1));
  for (const bool interlaced : {false, true}) {
    const Picture picture = decoded(made::gif({{9, 14}, {5, 12}, 2, 1, -1, interlaced}, indices));
    EXPECT_EQ(picture.size, (Size{9, 14}));
    EXPECT_EQ(pixel(picture, 0, 0), (std::vector{10, 20, 30}));  // outside: index 0
    EXPECT_EQ(pixel(picture, 2, 1), (std::vector{200, 0, 0}));
    EXPECT_EQ(pixel(picture, 6, 4), (std::vector{0, 200, 0}));
    EXPECT_EQ(pixel(picture, 6, 12), (std::vector{0, 200, 0}));
  }
  const Picture picture = decoded(made::gif({{9, 14}, {5, 12}, 2, 1, 3}, indices));
  EXPECT_EQ(pixel(picture, 0, 0), (std::vector{0, 0, 200}));  // outside: the transparent index
  EXPECT_EQ(decoded(made::gif({{4, 4}, {5, 12}, 2, 1, 3}, indices)).size, (Size{7, 13}));
}

TEST(Orientation, TurnsThePictureUpright) {
  // 3 x 2 pixels a b c / d e f; what a viewer shows for each orientation, by EXIF's definition.
  const char* const shown[] = {"abc/def",  "cba/fed",  "fed/cba",  "def/abc",
                               "ad/be/cf", "da/eb/fc", "fc/eb/da", "cf/be/ad"};
  for (int orientation = 1; orientation <= 8; ++orientation) {
    for (const bool little : {false, true}) {
      made::PngKind kind{8, 0};
      kind.exif = made::exif(orientation, little, false);
      const std::string file = made::png({3, 2}, kind, [](int64_t x, int64_t y, int64_t) {
        return static_cast<uint32_t>('a' + y * 3 + x);
      });
      EXPECT_EQ(picture_size(bytes_of(file), "made").orientation, orientation);
      const Picture picture = decoded(file);
      std::string seen;
      for (int64_t y = 0; y < picture.size.height; ++y) {
        if (y > 0) seen += '/';
        for (int64_t x = 0; x < picture.size.width; ++x) {
          seen += static_cast<char>(pixel(picture, x, y)[0]);
        }
      }
      EXPECT_EQ(seen, shown[orientation - 1]) << orientation;
      EXPECT_EQ(decode_picture(bytes_of(file), "made", {Exif::kIgnore}).size, (Size{3, 2}));
    }
  }
}

TEST(Orientation, IsReadFromJpegAndNonsenseIsNone) {
  const Picture picture = made::noise({40, 20});
  const auto size_with = [&](const std::string& exif) {
    return picture_size(bytes_of(made::jpeg(picture, {3, false, exif})), "made");
  };
  EXPECT_EQ(size_with(made::exif(6, true, true)).upright(), (Size{20, 40}));
  EXPECT_EQ(size_with(made::exif(6, true, false)).orientation, 1) << "no EXIF without its prefix";
  EXPECT_EQ(size_with(made::exif(9, false, true)).orientation, 1);
  const std::string whole = made::exif(6, true, true);
  for (size_t length = 0; length < whole.size(); ++length) {
    const std::string cut = whole.substr(0, length);
    const auto found = exif_orientation(bytes_of(cut), true);
    EXPECT_TRUE(!found || *found == 6) << length;
  }
}

TEST(BrokenPictures, AreTruncatedAtEveryLength) {
  const Picture picture = made::noise({40, 30});
  const std::string files[] = {made::png(picture), made::jpeg(picture),
                               made::jpeg(picture, {3, true}), made::webp(picture),
                               made::gif({{6, 20}, {6, 20}}, Bytes(120, 1))};
  for (const std::string& file : files) {
    // The last bytes of a GIF and of a PNG are no pixels; of a WebP they are a pad.
    for (size_t length = 12; length + 64 < file.size(); length += 1 + length / 50) {
      const std::string cut = file.substr(0, length);
      try {
        decode_picture(bytes_of(cut), "made");
        if (&file != &files[4]) ADD_FAILURE() << length << " of " << file.size();
      } catch (const MediaError& error) {
        const MediaFault fault = error.fault();
        EXPECT_TRUE(fault == MediaFault::kTruncated || fault == MediaFault::kDamaged)
            << length << ": " << error.what();
      }
    }
  }
  EXPECT_EQ(fault_of(files[0].substr(0, files[0].size() / 2)), MediaFault::kTruncated);
  EXPECT_EQ(fault_of(files[1].substr(0, files[1].size() / 2)), MediaFault::kTruncated);
  EXPECT_EQ(fault_of(files[2].substr(0, files[2].size() / 2)), MediaFault::kTruncated);
  EXPECT_EQ(fault_of(files[3].substr(0, files[3].size() / 2)), MediaFault::kTruncated);
}

TEST(BrokenPictures, ChangedBytesNeverCrash) {
  const Picture picture = made::noise({40, 30});
  std::string files[] = {made::png(picture), made::jpeg(picture), made::jpeg(picture, {3, true}),
                         made::webp(picture), made::gif({{6, 20}, {6, 20}}, Bytes(120, 1))};
  uint32_t state = 7;
  for (std::string& file : files) {
    for (int round = 0; round < 300; ++round) {
      state = state * 1664525u + 1013904223u;
      const size_t at = state % file.size();
      const char before = file[at];
      file[at] = static_cast<char>(state >> 16);
      try {
        decode_picture(bytes_of(file), "made", {Exif::kTranspose, 1 << 20});
      } catch (const MediaError&) {
      }
      file[at] = before;
    }
  }
}

TEST(BrokenPictures, OtherFilesAreNamed) {
  EXPECT_EQ(fault_of(""), MediaFault::kNotAPicture);
  EXPECT_EQ(fault_of("<html>no such page</html>"), MediaFault::kNotAPicture);
  EXPECT_EQ(fault_of("BM a bitmap"), MediaFault::kUnsupported);
  EXPECT_EQ(fault_of(std::string("II*\0 a tiff", 11)), MediaFault::kUnsupported);
  EXPECT_EQ(fault_of(std::string("\0\0\0\x18"
                                 "ftypheic",
                                 12)),
            MediaFault::kUnsupported);
  EXPECT_EQ(fault_of("\xff\xd8\xff"), MediaFault::kTruncated);
  EXPECT_EQ(fault_of(made::png_header(0, 5)), MediaFault::kDamaged);
}

TEST(BrokenPictures, FilesThatAreNone) {
  const test::TemporaryDirectory dir;
  const auto fault = [](const std::filesystem::path& file) {
    try {
      picture_size(file);
    } catch (const MediaError& error) {
      return error.fault();
    }
    return MediaFault::kDamaged;
  };
  EXPECT_EQ(fault(dir / "absent.png"), MediaFault::kMissing);
  EXPECT_EQ(fault(dir.path()), MediaFault::kMissing);
  ASSERT_EQ(::mkfifo((dir / "pipe.png").c_str(), 0600), 0);
  EXPECT_EQ(fault(dir / "pipe.png"), MediaFault::kMissing) << "a pipe would be waited for";
}

/// Big end first.
std::string four_bytes(size_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift & 0xff);
  return bytes;
}

// zlib gives a thousand bytes for one: what stands behind the pixels would take minutes.
TEST(Bombs, DataBehindTheLastRowIsNotReadOn) {
  const std::string whole = made::png(made::noise({28, 28}));
  const size_t idat = whole.find("IDAT");
  ASSERT_NE(idat, whole.npos);
  for (const size_t more : {size_t{0}, size_t{8} << 10, size_t{200} << 10}) {
    // Stored, not compressed: 28 rows of a filter's number and 28 pixels, and what is more.
    std::string rest(28 * (1 + 28 * 3) + more, '\0'), stream = "\x78\x01";
    while (!rest.empty()) {
      const std::string block = rest.substr(0, 65535);
      rest.erase(0, block.size());
      const auto size = static_cast<uint16_t>(block.size());
      stream += rest.empty() ? '\1' : '\0';
      for (const uint16_t number : {size, static_cast<uint16_t>(~size)})
        stream += {static_cast<char>(number & 0xff), static_cast<char>(number >> 8)};
      stream += block;
    }
    const std::string file = whole.substr(0, idat - 4) + four_bytes(stream.size() + 4) + "IDAT" +
                             stream + std::string(8, '\0') + whole.substr(whole.size() - 12);
    std::string error;
    try {
      decoded(file);
    } catch (const MediaError& damaged) {
      error = damaged.what();
    }
    if (more > 64 << 10)
      EXPECT_THAT(error, HasSubstr("it holds more than its pixels")) << more;
    else
      EXPECT_THAT(error, testing::Not(HasSubstr("more than its pixels"))) << more;
  }
}

TEST(Bombs, AreRefusedByTheirHeaderInLittleMemory) {
  const auto resident_kib = [] {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
  };
  decoded(made::png(made::noise({8, 8})));  // the library is open
  const long before = resident_kib();
  EXPECT_EQ(fault_of(made::png_header(20000, 20000)), MediaFault::kTooLarge);
  EXPECT_EQ(fault_of(made::png_header(0x7fffffff, 0x7fffffff)), MediaFault::kTooLarge);
  // Within the limit, but nothing behind the header: its pixels are never touched.
  EXPECT_EQ(fault_of(made::png_header(13000, 13000)), MediaFault::kTruncated);
  EXPECT_LT(resident_kib() - before, 16 * 1024);
  EXPECT_EQ(fault_of(made::png(made::noise({40, 30})), 1199), MediaFault::kTooLarge);
  EXPECT_EQ(
      decode_picture(bytes_of(made::png(made::noise({40, 30}))), "made", {Exif::kTranspose, 1200})
          .size,
      (Size{40, 30}));
}

}  // namespace
}  // namespace danlu::media
