#include "pictures/painter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <png.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "base/file.h"
#include "pictures/picture_fonts.h"
#include "support/svg.h"
#include "support/temporary_directory.h"

namespace danlu::pictures {
namespace {

using test::Polyline;
using test::Svg;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr Color kRed{1, 0, 0}, kGreen{0, 1, 0};

using Draw = std::function<void(Painter&)>;
Svg svg_of(const Draw& draw) { return Svg(paint(PictureFormat::kSvg, 60, 40, false, draw)); }

class Pixels {
 public:
  explicit Pixels(const std::string& png) {
    image_.version = PNG_IMAGE_VERSION;
    EXPECT_TRUE(png_image_begin_read_from_memory(&image_, png.data(), png.size()));
    image_.format = PNG_FORMAT_RGB;
    bytes_.resize(PNG_IMAGE_SIZE(image_));
    EXPECT_TRUE(png_image_finish_read(&image_, nullptr, bytes_.data(), 0, nullptr));
  }
  unsigned width() const { return image_.width; }
  unsigned height() const { return image_.height; }
  std::array<int, 3> at(size_t x, size_t y) const {
    const uint8_t* pixel = &bytes_[3 * (y * image_.width + x)];
    return {pixel[0], pixel[1], pixel[2]};
  }

 private:
  png_image image_{};
  std::vector<uint8_t> bytes_;
};

Pixels pixels_of(const Draw& draw) {
  return Pixels(paint(PictureFormat::kPng, 60, 40, false, draw));
}

std::vector<Point> corners(const Polyline& line) { return {line.begin(), line.end()}; }

MATCHER_P2(IsPoint, x, y, "") { return std::abs(arg.x - x) < 0.01 && std::abs(arg.y - y) < 0.01; }

TEST(Painter, AFilledAreaLiesWhereItWasPutInBothFormats) {
  const Draw draw = [](Painter& painter) { painter.fill({10, 20}, 30, 5, kRed); };
  const auto filled = svg_of(draw).filled();
  ASSERT_EQ(filled.size(), 1u);
  EXPECT_EQ(filled[0].first.red, 100);
  EXPECT_EQ(filled[0].first.green, 0);
  EXPECT_THAT(corners(filled[0].second),
              ElementsAre(IsPoint(10, 20), IsPoint(40, 20), IsPoint(40, 25), IsPoint(10, 25)));
  const Pixels pixels = pixels_of(draw);
  // Two pixels a unit: x 20 … 79, y 40 … 49.
  EXPECT_THAT(pixels.at(20, 40), ElementsAre(255, 0, 0));
  EXPECT_THAT(pixels.at(79, 49), ElementsAre(255, 0, 0));
  for (const auto& [x, y] : {std::pair{19, 40}, {20, 39}, {80, 49}, {79, 50}})
    EXPECT_THAT(pixels.at(x, y), ElementsAre(255, 255, 255)) << x << " " << y;
}

TEST(Painter, ThePngHasTwicePixelsAndAWhitePage) {
  const Pixels pixels = pixels_of([](Painter&) {});
  EXPECT_EQ(pixels.width(), 120u);
  EXPECT_EQ(pixels.height(), 80u);
  EXPECT_THAT(pixels.at(0, 0), ElementsAre(255, 255, 255));
  EXPECT_THAT(pixels.at(119, 79), ElementsAre(255, 255, 255));
}

TEST(Painter, WhatIsDrawnLaterLiesAbove) {
  const Pixels pixels = pixels_of([](Painter& painter) {
    painter.fill({0, 0}, 20, 20, kRed);
    painter.fill({10, 10}, 20, 20, kGreen);
  });
  EXPECT_THAT(pixels.at(18, 18), ElementsAre(255, 0, 0));
  EXPECT_THAT(pixels.at(22, 22), ElementsAre(0, 255, 0));
}

TEST(Painter, ALineIsBrokenWhereACoordinateIsNotFinite) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<Point> points = {{1, 1}, {2, 5}, {nan, 3}, {4, 4}, {5, 1}, {6, nan}, {7, 7}};
  const auto lines =
      svg_of([&](Painter& painter) { painter.line(points, 1, kRed); }).polylines({100, 0, 0});
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_THAT(lines[0], ElementsAre(IsPoint(1, 1), IsPoint(2, 5)));
  EXPECT_THAT(lines[1], ElementsAre(IsPoint(4, 4), IsPoint(5, 1)));
}

TEST(Painter, ADotIsRoundAndWhereItsCenterIs) {
  const Pixels pixels = pixels_of([](Painter& painter) { painter.dot({30, 20}, 5, kRed); });
  EXPECT_THAT(pixels.at(60, 40), ElementsAre(255, 0, 0));
  EXPECT_THAT(pixels.at(60, 48), ElementsAre(255, 0, 0));
  EXPECT_THAT(pixels.at(60, 51), ElementsAre(255, 255, 255));
  EXPECT_THAT(pixels.at(69, 49), ElementsAre(255, 255, 255));  // the corner of its square
}

TEST(Painter, TextsAreTitleAndDescriptionOfAnSvg) {
  const Svg svg = svg_of([](Painter& painter) {
    painter.text({5, 5}, "a < b & c", {});
    painter.text({5, 15}, "second", {});
    painter.text({5, 25}, "third\nline\xff", {});
    EXPECT_EQ(painter.texts().size(), 3u);
  });
  EXPECT_EQ(svg.title(), "a < b & c");
  EXPECT_THAT(svg.words(), ElementsAre("second", HasSubstr("third line")));
}

double leftmost(const Svg& svg) {
  double left = 1e9;
  for (const Point& point : svg.all_points()) {
    if (point.x > 0) left = std::min(left, point.x);  // the page begins at 0
  }
  return left;
}

TEST(Painter, AnAlignedTextEndsOrStandsAtItsPoint) {
  if (!fonts_show("m")) GTEST_SKIP() << "no font";
  const auto left = [](Align align) {
    return leftmost(svg_of(
        [&](Painter& painter) { painter.text({30, 20}, "mmmm", {.size = 6, .align = align}); }));
  };
  double width = 0;
  svg_of([&](Painter& painter) { width = painter.text_width("mmmm", {.size = 6}); });
  EXPECT_GT(width, 16);
  EXPECT_NEAR(left(Align::kLeft) - left(Align::kCenter), width / 2, 0.1);
  EXPECT_NEAR(left(Align::kLeft) - left(Align::kRight), width, 0.1);
  EXPECT_NEAR(left(Align::kLeft), 30, 1.5);
}

TEST(Painter, ATooLongTextIsCut) {
  if (!fonts_show("m")) GTEST_SKIP() << "no font";
  const Svg svg = svg_of([](Painter& painter) {
    painter.text({5, 20}, std::string(100, 'm'), {.size = 8, .max_width = 40});
  });
  EXPECT_GT(svg.glyphs(), 2u);
  EXPECT_LT(svg.glyphs(), 9u);
  for (const Point& point : svg.all_points()) EXPECT_LE(point.x, 60);
}

TEST(Painter, UpwardsTextIsHigherThanWide) {
  if (!fonts_show("m")) GTEST_SKIP() << "no font";
  const auto extent = [](bool upwards) {
    double left = 1e9, right = 0, top = 1e9, bottom = 0;
    const Svg svg = svg_of([&](Painter& painter) {
      painter.text({30, 20}, "mmmm", {.size = 6, .align = Align::kCenter, .upwards = upwards});
    });
    for (const auto& point : svg.all_points()) {
      if (point.x <= 0 || point.x >= 60) continue;
      left = std::min(left, point.x), right = std::max(right, point.x);
      top = std::min(top, point.y), bottom = std::max(bottom, point.y);
    }
    return std::pair(right - left, bottom - top);
  };
  EXPECT_GT(extent(false).first, 2 * extent(false).second);
  EXPECT_GT(extent(true).second, 2 * extent(true).first);
}

/// In a process of its own: fonts are looked for once.
void draw_without_fonts(const fs::path& configuration) {
  ::setenv("FONTCONFIG_FILE", configuration.c_str(), 1);
  const Svg svg = svg_of([](Painter& painter) {
    painter.text({5, 5}, "a title", {});
    painter.fill({10, 20}, 30, 5, kRed);
    if (painter.text_width("a title", {}) != 0) std::exit(2);
  });
  const bool good =
      svg.glyphs() == 0 && svg.filled().size() == 1 && svg.title() == "a title" && !fonts_show("a");
  std::exit(good ? 0 : 1);
}

TEST(Painter, AMachineWithoutFontsGetsThePictureWithoutLettersInSilence) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const test::TemporaryDirectory folder;
  write_file_atomic(folder / "fonts.conf", "<fontconfig></fontconfig>");
  EXPECT_EXIT(draw_without_fonts(folder / "fonts.conf"), testing::ExitedWithCode(0),
              testing::StrEq(""));
  EXPECT_EXIT(draw_without_fonts(folder / "not there"), testing::ExitedWithCode(0),
              testing::StrEq(""));
}

}  // namespace
}  // namespace danlu::pictures
