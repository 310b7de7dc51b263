// Damage within pixels, found before they are needed.
#include "media/picture_end.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "media/decode.h"
#include "media/made_pictures.h"
#include "media/media_error.h"

namespace danlu::media {
namespace {

using testing::HasSubstr;

std::span<const std::byte> view_of(const std::string& file) {
  return std::as_bytes(std::span(file.data(), file.size()));
}

/// "": it is whole; else what is said.
std::string complaint(const std::string& file) {
  try {
    require_whole_picture(view_of(file), picture_size(view_of(file), "made").format, "made");
  } catch (const MediaError& error) {
    return error.what();
  }
  return {};
}

std::string decoding_error(const std::string& file) {
  try {
    decode_raw(view_of(file), "made");
  } catch (const MediaError& error) {
    return error.what();
  }
  return {};
}

constexpr Size kSides{64, 48};

TEST(WholePicture, APngIsJudgedByItsChecksums) {
  std::string file = made::png(made::noise(kSides));
  EXPECT_EQ(complaint(file), "");
  file[file.size() / 2] ^= 1;
  EXPECT_THAT(complaint(file), HasSubstr("made: damaged picture: the checksum of IDAT is wrong"));
  file[file.size() / 2] ^= 1;
  file.resize(file.size() - 12);
  EXPECT_THAT(complaint(file), HasSubstr("the end of the picture is missing"));
}

/// Right checksums say nothing of what stands between them.
TEST(WholePicture, APngIsDecodedToo) {
  const std::string whole = made::png(made::noise(kSides));
  const size_t data = whole.find("IDAT");
  ASSERT_NE(data, whole.npos);
  const std::string without = whole.substr(0, data - 4) + whole.substr(whole.find("IEND") - 4);
  EXPECT_NE(decoding_error(without), "");
  EXPECT_NE(complaint(without), "");
}

TEST(WholePicture, WhatDecodingWouldRefuseIsRefused) {
  const Picture picture = made::noise(kSides);
  std::vector<uint8_t> indices(static_cast<size_t>(kSides.width * kSides.height));
  for (size_t i = 0; i < indices.size(); ++i) indices[i] = i * i % 4;
  const std::vector<std::string> files = {made::jpeg(picture, {.progressive = true}),
                                          made::webp(picture),
                                          made::gif({.canvas = kSides, .frame = kSides}, indices)};
  for (const std::string& whole : files) {
    EXPECT_EQ(complaint(whole), "");
    int damaged = 0;
    for (size_t at = whole.size() / 4; at + 40 < whole.size(); at += 23) {
      std::string file = whole;
      for (size_t i = at; i < at + 20; ++i) file[i] = static_cast<char>(i * 37);
      if (decoding_error(file).empty()) continue;
      ++damaged;
      EXPECT_NE(complaint(file), "") << "damage at " << at;
    }
    EXPECT_GT(damaged, 0) << "no damage was tried";
  }
}

TEST(WholePicture, ThePixelsOfAPlainJpegAreTakenAsTheyAre) {
  std::string file = made::jpeg(made::noise(kSides));
  for (size_t i = file.size() / 2; i < file.size() / 2 + 30; ++i) file[i] = '\x5a';
  EXPECT_EQ(decoding_error(file), "");
  EXPECT_EQ(complaint(file), "");
}

TEST(WholePicture, ThePlainJpegsTablesAreRead) {
  const std::string whole = made::jpeg(made::noise(kSides));
  int damaged = 0;
  for (const std::string marker : {"\xff\xc4", "\xff\xdb"}) {  // Huffman's codes, divisors
    for (size_t at = whole.find(marker); at != whole.npos; at = whole.find(marker, at + 1)) {
      for (size_t i = at + 2; i < at + 24; ++i) {
        std::string file = whole;
        file[i] = static_cast<char>(file[i] + 113);
        if (decoding_error(file).empty()) continue;
        ++damaged;
        EXPECT_NE(complaint(file), "") << "damage at " << i;
      }
    }
  }
  EXPECT_GT(damaged, 20) << "tables were not found";
}

}  // namespace
}  // namespace danlu::media
