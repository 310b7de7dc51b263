#include "eval/needle/heat_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "base/error.h"
#include "pictures/picture_fonts.h"
#include "support/svg.h"
#include "support/throws.h"

namespace danlu::eval {
namespace {

using pictures::PictureFormat;
using test::Svg;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

HeatMap two_by_three() {
  return {.title = "needles · a model",
          .column_title = "length",
          .row_title = "depth",
          .value_title = "score",
          .columns = {"1000", "2000", "3000"},
          .rows = {"0", "100"},
          .values = {{100, 50, 0}, {12.345, kUnknown, 80}}};
}

Svg heat_svg(const HeatMap& map, bool chinese = false) {
  return Svg(heat_map_picture(map, PictureFormat::kSvg, chinese));
}

size_t areas_of(const Svg& svg, double value) {
  const auto color = heat_color(value / 100);
  size_t found = 0;
  for (const auto& [fill, shape] : svg.filled()) {
    found += std::abs(fill.red - 100 * color.red) + std::abs(fill.green - 100 * color.green) +
                 std::abs(fill.blue - 100 * color.blue) <
             0.01;
  }
  return found;
}

TEST(HeatMap, SaysValuesMeansAndTitles) {
  const Svg svg = heat_svg(two_by_three());
  EXPECT_EQ(svg.title(), "needles · a model");
  // Means: rows (100+50+0)/3 and (12.345+80)/2; columns (100+12.345)/2, 50, 40; all 242.345/5.
  for (const char* word : {"100", "50.0", "0.0", "12.3", "80.0", "46.2", "56.2", "40.0", "48.5",
                           "length", "depth", "score", "mean", "1000", "2000", "3000", "25", "75"})
    EXPECT_THAT(svg.words(), Contains(word));
  EXPECT_THAT(svg.words(), Not(Contains("nan")));
}

TEST(HeatMap, EveryValueHasItsColour) {
  const Svg svg = heat_svg(two_by_three());
  EXPECT_EQ(areas_of(svg, 80), 1u);
  EXPECT_EQ(areas_of(svg, 12.345), 1u);
  EXPECT_EQ(areas_of(svg, 0), 1u);
  EXPECT_EQ(areas_of(svg, 50), 3u);  // the cell, its row's mean, its column's
}

TEST(HeatMap, CellsLieInRowsAndColumns) {
  const Svg svg = heat_svg(two_by_three());
  test::Polyline first, right, below;
  const auto is = [](const test::Stroke& fill, double value) {
    return std::abs(fill.red - 100 * heat_color(value / 100).red) < 0.01 &&
           std::abs(fill.green - 100 * heat_color(value / 100).green) < 0.01;
  };
  for (const auto& [fill, shape] : svg.filled()) {
    if (is(fill, 100) && first.empty()) first = shape;
    if (is(fill, 0)) right = shape;
    if (is(fill, 12.345)) below = shape;
  }
  ASSERT_FALSE(first.empty() || right.empty() || below.empty());
  const double width = first[1].x - first[0].x + 1, height = first[2].y - first[1].y + 1;
  EXPECT_NEAR(right[0].x - first[0].x, 2 * width, 0.01);
  EXPECT_NEAR(right[0].y, first[0].y, 0.01);
  EXPECT_NEAR(below[0].x, first[0].x, 0.01);
  EXPECT_NEAR(below[0].y - first[0].y, height, 0.01);
}

TEST(HeatMap, WhatIsUnknownIsHatchedInGrey) {
  const Svg svg = heat_svg(two_by_three());
  EXPECT_GT(svg.polylines({72, 72, 72}).size(), 5u);
  HeatMap whole = two_by_three();
  whole.values[1][1] = 1;
  EXPECT_THAT(heat_svg(whole).polylines({72, 72, 72}), IsEmpty());
  HeatMap nothing = two_by_three();
  for (auto& row : nothing.values) row.assign(3, kUnknown);
  EXPECT_THAT(heat_svg(nothing).words(), Not(Contains(HasSubstr("nan"))));
}

TEST(HeatMap, TheColoursGetLighterAllTheWay) {
  const auto lightness = [](double part) {
    const auto color = heat_color(part);
    return 0.2126 * std::pow(color.red, 2.2) + 0.7152 * std::pow(color.green, 2.2) +
           0.0722 * std::pow(color.blue, 2.2);
  };
  for (int i = 0; i < 100; ++i) EXPECT_LT(lightness(i / 100.0), lightness((i + 1) / 100.0)) << i;
  EXPECT_EQ(heat_color(-3).red, heat_color(0).red);
  EXPECT_EQ(heat_color(7).green, heat_color(1).green);
}

TEST(HeatMap, EverythingLiesOnThePageAndApart) {
  for (const size_t columns : {1, 2, 8, 40}) {
    for (const size_t rows : {1, 11, 20, 101}) {
      HeatMap map = two_by_three();
      map.title = std::string(200, 'W');  // cut; its ellipsis stands close to it
      map.columns.clear(), map.rows.clear();
      for (size_t i = 0; i < columns; ++i) map.columns.push_back(std::to_string(128000 + i));
      for (size_t i = 0; i < rows; ++i) map.rows.push_back(std::to_string(i));
      map.values.assign(rows, std::vector<double>(columns, 99.9));
      const std::string text = heat_map_picture(map, PictureFormat::kSvg, false);
      double width = 0, height = 0;
      ASSERT_EQ(std::sscanf(text.c_str() + text.find(" width="), " width=\"%lf", &width), 1);
      ASSERT_EQ(std::sscanf(text.c_str() + text.find(" height="), " height=\"%lf", &height), 1);
      const Svg svg(text);
      for (const auto& point : svg.all_points()) {
        ASSERT_GE(point.x, -0.01);
        ASSERT_LE(point.x, width + 0.01);
        ASSERT_GE(point.y, -0.01);
        ASSERT_LE(point.y, height + 0.01);
      }
      map.title = "a title";
      map.row_title = "depth of the needle (%)";
      EXPECT_THAT(heat_svg(map).words_that_touch(), IsEmpty()) << columns << " x " << rows;
    }
  }
}

TEST(HeatMap, SpeaksChineseIfAsked) {
  EXPECT_THAT(heat_svg(two_by_three(), true).words(), Contains(pictures::showable("均值")));
}

TEST(HeatMap, AMapThatDoesNotFitIsRefused) {
  HeatMap map = two_by_three();
  map.values[1].pop_back();
  EXPECT_THROW(heat_svg(map), InternalError);
  map = two_by_three();
  map.rows.clear(), map.values.clear();
  EXPECT_THROW(heat_svg(map), InternalError);
}

}  // namespace
}  // namespace danlu::eval
