// The resize against plain loops over its definition.
#include "media/resize.h"

#include <gtest/gtest.h>

#include <cmath>

#include "media/made_pictures.h"
#include "media/resize_weights.h"

namespace danlu::media {
namespace {

struct Samples {
  uint64_t state = 12345;
  int64_t below(int64_t limit) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<int64_t>((state >> 33) % static_cast<uint64_t>(limit));
  }
};

double cubic(double x) {
  x = std::abs(x);
  if (x < 1) return 1.5 * x * x * x - 2.5 * x * x + 1;
  return x < 2 ? -0.5 * x * x * x + 2.5 * x * x - 4 * x + 2 : 0;
}

/// One direction in double: out[i] is the weighted mean of the pixels within two (widened) pixels.
std::vector<double> plain_line(const std::vector<double>& line, int64_t to) {
  const auto from = static_cast<int64_t>(line.size());
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  const double wide = std::max(1.0, scale);
  std::vector<double> out;
  for (int64_t i = 0; i < to; ++i) {
    const double centre = (static_cast<double>(i) + 0.5) * scale;
    double sum = 0, weights = 0;
    for (int64_t x = 0; x < from; ++x) {
      // The pixels whose centres lie in the support, rounded to whole pixels.
      if (x < std::floor(centre - 2 * wide + 0.5) || x >= std::floor(centre + 2 * wide + 0.5))
        continue;
      const double weight = cubic((static_cast<double>(x) + 0.5 - centre) / wide);
      sum += weight * line[static_cast<size_t>(x)];
      weights += weight;
    }
    out.push_back(std::clamp(std::round(sum / weights), 0.0, 255.0));
  }
  return out;
}

std::vector<double> plain_bicubic(const PixelBuffer& from, Size size, int64_t channels, Size to) {
  std::vector<double> narrow(static_cast<size_t>(to.width * size.height * channels));
  for (int64_t y = 0; y < size.height; ++y) {
    for (int64_t c = 0; c < channels; ++c) {
      std::vector<double> line;
      for (int64_t x = 0; x < size.width; ++x) {
        line.push_back(from.data()[(y * size.width + x) * channels + c]);
      }
      if (to.width != size.width) line = plain_line(line, to.width);
      for (int64_t x = 0; x < to.width; ++x) {
        narrow[static_cast<size_t>((y * to.width + x) * channels + c)] =
            line[static_cast<size_t>(x)];
      }
    }
  }
  if (to.height == size.height) return narrow;
  std::vector<double> out(static_cast<size_t>(to.area() * channels));
  for (int64_t i = 0; i < to.width * channels; ++i) {
    std::vector<double> line;
    for (int64_t y = 0; y < size.height; ++y) {
      line.push_back(narrow[static_cast<size_t>(y * to.width * channels + i)]);
    }
    line = plain_line(line, to.height);
    for (int64_t y = 0; y < to.height; ++y) {
      out[static_cast<size_t>(y * to.width * channels + i)] = line[static_cast<size_t>(y)];
    }
  }
  return out;
}

TEST(Resize, BicubicIsThePlainSum) {
  Samples samples;
  int64_t differing = 0, all = 0;
  for (int round = 0; round < 200; ++round) {
    const int64_t channels = 1 + samples.below(4);
    const Size from{1 + samples.below(90), 1 + samples.below(90)};
    const Size to{1 + samples.below(120), 1 + samples.below(60)};
    SCOPED_TRACE(testing::Message() << from.width << " x " << from.height << " to " << to.width
                                    << " x " << to.height << ", " << channels << " channels");
    PixelBuffer bytes(from.area() * channels);
    for (int64_t i = 0; i < bytes.size(); ++i) {
      bytes.data()[i] = static_cast<uint8_t>(samples.below(3) == 0 ? 255 : samples.below(256));
    }
    const PixelBuffer got = resized_bytes(bytes, from, channels, to, Filter::kBicubic);
    const auto wanted = plain_bicubic(bytes, from, channels, to);
    ASSERT_EQ(static_cast<size_t>(got.size()), wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i, ++all) {
      // Halves may go either way between 22 bits and a double.
      ASSERT_NEAR(got.data()[i], wanted[i], 1) << i;
      differing += got.data()[i] != wanted[i];
    }
  }
  EXPECT_LE(differing * 1000, all);
}

TEST(Resize, NearestSumsItsPlacesUp) {
  Samples samples;
  for (int round = 0; round < 100; ++round) {
    const Size from{1 + samples.below(300), 1 + samples.below(300)};
    const Size to{1 + samples.below(300), 1 + samples.below(300)};
    const Picture picture = made::noise(from, static_cast<uint32_t>(round));
    const Picture got = resized(picture, to, Filter::kNearest);
    const double scale_x = static_cast<double>(from.width) / static_cast<double>(to.width);
    const double scale_y = static_cast<double>(from.height) / static_cast<double>(to.height);
    double place_y = scale_y / 2;
    for (int64_t y = 0; y < to.height; ++y, place_y += scale_y) {
      double place_x = scale_x / 2;
      for (int64_t x = 0; x < to.width; ++x, place_x += scale_x) {
        const int64_t at =
            (static_cast<int64_t>(place_y) * from.width + static_cast<int64_t>(place_x)) * 3;
        ASSERT_EQ(got.rgb.data()[(y * to.width + x) * 3 + 1], picture.rgb.data()[at + 1]);
      }
    }
  }
}

TEST(Resize, VectorsGiveTheSameBytes) {
  if (!has_vector_resize()) GTEST_SKIP() << "this processor has no AVX2, or DANLU_CPU hides it";
  Samples samples;
  for (int round = 0; round < 200; ++round) {
    const int64_t from = 1 + samples.below(400), to = 1 + samples.below(200);
    const ResizeWeights weights = bicubic_weights(from, to);
    const Picture rows = made::noise({from, 4}, static_cast<uint32_t>(round));
    PixelBuffer got(4 * to * 3), wanted(to * 3);
    resize_four_rows_vector(rows.rgb.data(), static_cast<size_t>(from * 3), weights, got.data(),
                            static_cast<size_t>(to * 3));
    for (int64_t y = 0; y < 4; ++y) {
      resize_row(rows.rgb.data() + y * from * 3, weights, 3, wanted.data());
      ASSERT_TRUE(std::equal(wanted.data(), wanted.data() + to * 3, got.data() + y * to * 3))
          << from << " to " << to;
    }
    const int64_t width = 1 + samples.below(70);
    const Picture column = made::noise({width, from}, static_cast<uint32_t>(round));
    PixelBuffer one(width * 3), other(width * 3);
    for (size_t y = 0; y < weights.taps.size(); ++y) {
      const auto bytes = static_cast<size_t>(width * 3);
      const uint8_t* const begin =
          column.rgb.data() + static_cast<size_t>(weights.taps[y].begin) * bytes;
      const int32_t* const weight = weights.fixed.data() + y * weights.stride;
      resize_column(begin, bytes, weights.taps[y].count, weight, bytes, one.data());
      resize_column_vector(begin, bytes, weights.taps[y].count, weight, bytes, other.data());
      ASSERT_TRUE(std::equal(one.data(), one.data() + bytes, other.data())) << from << " to " << to;
    }
  }
}

TEST(Resize, ConstantsStayAndTheSameSizeIsACopy) {
  Picture flat({37, 23});
  std::fill_n(flat.rgb.data(), flat.rgb.size(), uint8_t{201});
  for (const Size to : {Size{37, 23}, Size{5, 90}, Size{400, 3}, Size{1, 1}}) {
    const Picture got = resized(flat, to, Filter::kBicubic);
    for (int64_t i = 0; i < got.rgb.size(); ++i) ASSERT_EQ(got.rgb.data()[i], 201);
  }
}

TEST(Resize, ColoursWeighByTheirAlpha) {
  // Half of the pixels are red and opaque, the others green and unseen: no green shows.
  RawPicture raw(PixelMode::kRgba, {40, 40});
  for (int64_t i = 0; i < raw.size.area(); ++i) {
    const uint8_t seen[] = {200, 0, 0, 255}, unseen[] = {0, 250, 0, 0};
    std::copy_n(i % 40 < 20 ? seen : unseen, 4, raw.bytes.data() + 4 * i);
  }
  const RawPicture got = resized(std::move(raw), {10, 10}, Filter::kBicubic);
  for (int64_t i = 0; i < got.size.area(); ++i) {
    EXPECT_EQ(got.bytes.data()[4 * i + 1], 0);
    // Where alpha is small, its rounding shows in the colour.
    EXPECT_TRUE(got.bytes.data()[4 * i + 3] < 32 || got.bytes.data()[4 * i] >= 190);
  }
}

TEST(Resize, PalettesAndBilevelPicturesKeepTheirValues) {
  for (const PixelMode mode : {PixelMode::kPalette, PixelMode::kBilevel}) {
    RawPicture raw(mode, {31, 17});
    for (int64_t i = 0; i < raw.size.area(); ++i) raw.bytes.data()[i] = i % 2 ? 255 : 0;
    const RawPicture got = resized(std::move(raw), {12, 9}, Filter::kBicubic);
    for (int64_t i = 0; i < got.bytes.size(); ++i) {
      EXPECT_TRUE(got.bytes.data()[i] == 0 || got.bytes.data()[i] == 255);
    }
  }
}

TEST(Resize, GreyOf16BitsKeepsItsBits) {
  RawPicture raw(PixelMode::kGrey16, {20, 20});
  for (int64_t i = 0; i < raw.size.area(); ++i) {
    raw.bytes.data()[2 * i] = 0x34;
    raw.bytes.data()[2 * i + 1] = 0x12;
  }
  const RawPicture got = resized(std::move(raw), {7, 13}, Filter::kBicubic);
  ASSERT_EQ(got.bytes.size(), 2 * 7 * 13);
  for (int64_t i = 0; i < 7 * 13; ++i) {
    EXPECT_EQ(got.bytes.data()[2 * i] | got.bytes.data()[2 * i + 1] << 8, 0x1234);
  }
}

}  // namespace
}  // namespace danlu::media
