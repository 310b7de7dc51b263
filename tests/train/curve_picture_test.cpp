#include "train/report/curve_picture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <png.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "base/file.h"
#include "base/log.h"
#include "pictures/picture_fonts.h"
#include "support/svg.h"
#include "support/temporary_directory.h"
#include "train/report/axis.h"
#include "train/report/metrics_log.h"
#include "train/report/picture_labels.h"

namespace danlu::train::curve_picture_test {
using namespace pictures;

using test::Polyline;
using test::Stroke;
using test::Svg;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StrEq;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

constexpr Stroke kRawStroke{100, 72, 60}, kMeanStroke{90, 29, 10}, kEvaluationStroke{10, 42, 70};

Series zigzag(int count) {
  Series points;
  for (int step = 1; step <= count; ++step) points.emplace_back(step, 3 + step % 2);
  return points;
}

Svg drawn(const Curve& curve) { return Svg(curve_picture(curve, PictureFormat::kSvg, false)); }

TEST(CurvePicture, ItsWordsSayWhatIsShown) {
  const Svg svg = drawn({"loss", "my run", zigzag(4), {{4, 3.5}}});
  EXPECT_EQ(svg.title(), "training loss · my run");
  for (const char* word : {"training loss", "step", "each record", "exponential mean 0.9",
                           "evaluation", "3.0", "3.2", "4.0", "1", "4"})
    EXPECT_THAT(svg.words(), Contains(word));
  EXPECT_THAT(svg.words(), Not(Contains("1.5")));  // there are no half steps
}

TEST(CurvePicture, UnitsAreThoseThatAreRead) {
  const Svg mfu = drawn({"mfu", "", {{1, 0.31}, {2, 0.35}}});
  EXPECT_EQ(mfu.title(), "model FLOPs utilisation");
  EXPECT_THAT(mfu.words(), Contains("model FLOPs utilisation (%)"));
  EXPECT_THAT(mfu.words(), Contains("33"));
  const Svg speed = drawn({"tokens_per_second", "", {{1, 100000}, {2, 120000}}});
  EXPECT_THAT(speed.words(), Contains("110k"));
  EXPECT_THAT(speed.words(), Not(Contains("each record")));
  EXPECT_EQ(drawn({"of tomorrow", "r", zigzag(2)}).title(), "of tomorrow · r");
}

TEST(CurvePicture, EveryPointLiesWhereItsValueIs) {
  const Curve curve{"loss", "run", {{0, 1}, {10, 5}, {20, 2}, {40, 4}}, {{20, 3}, {40, 5}}};
  const Svg svg = drawn(curve);
  const Polyline raw = svg.longest(kRawStroke);
  ASSERT_EQ(raw.size(), 4u);
  // A step and a unit of the value are as long everywhere: 10 steps each, 4 up, 3 down, 2 up.
  const double ten_steps = raw[1].x - raw[0].x, unit = (raw[0].y - raw[1].y) / 4;
  EXPECT_GT(ten_steps, 100);
  EXPECT_GT(unit, 40);
  EXPECT_NEAR(raw[2].x - raw[1].x, ten_steps, 0.02);
  EXPECT_NEAR(raw[3].x - raw[2].x, 2 * ten_steps, 0.02);
  EXPECT_NEAR(raw[2].y - raw[1].y, 3 * unit, 0.02);
  EXPECT_NEAR(raw[2].y - raw[3].y, 2 * unit, 0.02);
  EXPECT_EQ(svg.longest(kMeanStroke).size(), 4u);
  EXPECT_NEAR(svg.longest(kMeanStroke)[0].y, raw[0].y, 0.02);
  const Polyline evaluations = svg.longest(kEvaluationStroke);
  ASSERT_EQ(evaluations.size(), 2u);
  EXPECT_NEAR(evaluations[0].x, raw[2].x, 0.02);
  EXPECT_NEAR(evaluations[0].y, raw[2].y - unit, 0.02);
  EXPECT_EQ(svg.dots(kEvaluationStroke), 3u);  // one stands in the legend
}

TEST(CurvePicture, TheMeanIsDrawnAboveTheRecords) {
  const std::string svg = curve_picture({"loss", "", zigzag(30)}, PictureFormat::kSvg, false);
  const Svg parsed(svg);
  EXPECT_GT(parsed.place_of_longest(kMeanStroke), parsed.place_of_longest(kRawStroke));
}

TEST(CurvePicture, OfAMillionPointsThoseThatCanBeSeenAreDrawn) {
  Series points;
  for (int step = 1; step <= 1000000; ++step) points.emplace_back(step, 1 + 0.1 * (step % 2));
  points[654321].second = 9;
  points[123456].second = -7;
  const Svg svg = drawn({"loss", "", points});
  const Polyline raw = svg.longest(kRawStroke);
  EXPECT_GT(raw.size(), 1000u);
  EXPECT_LT(raw.size(), 10000u);
  const auto by_y = [](Point a, Point b) { return a.y < b.y; };
  const Point highest = *std::ranges::min_element(raw, by_y),
              lowest = *std::ranges::max_element(raw, by_y);
  const double width = raw.back().x - raw.front().x;
  EXPECT_NEAR((highest.x - raw.front().x) / width, 0.654321, 1e-3);
  EXPECT_NEAR((lowest.x - raw.front().x) / width, 0.123456, 1e-3);
}

TEST(CurvePicture, ValuesThatAreNotFiniteAreGaps) {
  const Svg svg =
      drawn({"loss", "", {{1, 3}, {2, 4}, {3, kNan}, {4, 3}, {5, 4}, {6, kInfinity}, {7, 3.5}}});
  EXPECT_EQ(svg.longest(kRawStroke).size(), 2u);
  EXPECT_EQ(svg.polylines(kRawStroke).size(), 3u);  // two of two points, the legend's
  EXPECT_EQ(svg.dots(kRawStroke), 1u);              // step 7
}

TEST(CurvePicture, WithoutAFiniteValueItSaysSo) {
  for (const Series& points : {Series{}, Series{{1, kNan}}, Series{{1, kInfinity}, {2, -1e305}}}) {
    const Svg svg = drawn({"loss", "run", points});
    EXPECT_EQ(svg.title(), "training loss · run");
    EXPECT_THAT(svg.words(), ElementsAre("no finite value"));
  }
}

TEST(CurvePicture, OnePointIsADot) {
  const Svg svg = drawn({"loss", "", {{5, 2.5}}});
  EXPECT_EQ(svg.dots(kMeanStroke), 1u);
  EXPECT_THAT(svg.words(), Contains("5"));
  EXPECT_THAT(svg.words(), Contains("2.50"));
}

TEST(CurvePicture, EveryCoordinateLiesOnThePageWhateverTheNumbersAre) {
  const std::vector<Series> cases = {
      {{1, 5}},
      {{1, 0}, {2, 0}, {3, 0}},
      {{1, 12.5}, {2, 12.5}},
      {{1, -3e-9}, {2, -3e-9}},
      {{1, 1}, {2, 1 + 2.3e-16}},  // neighbours: no tick lies between
      {{1, 9e297}, {2, -9e297}},
      {{1, 1.7e308}, {2, 1}, {3, 2}},
      {{1, 5e-324}, {2, 1e-310}},
      {{1, 1e-12}, {2, 1e12}},
      {{1, 123456789.25}, {2, 123456789.5}},
      {{7, 1}, {7, 2}},
      {{0, 1}, {std::numeric_limits<int64_t>::max(), 2}},
      {{1000000000000, 1}, {1000000000001, 2}},
      {{1, kNan}, {2, 1}, {3, -kInfinity}},
  };
  for (const Series& points : cases) {
    for (const char* key : {"loss", "mfu", "eval_loss"}) {
      const std::string text = curve_picture({key, "run", points}, PictureFormat::kSvg, false);
      EXPECT_THAT(text, Not(HasSubstr("nan"))) << points[0].second;
      EXPECT_THAT(text, Not(HasSubstr("inf"))) << points[0].second;
      const Svg svg(text);
      for (const Point& point : svg.all_points()) {
        ASSERT_TRUE(point.x >= 0 && point.x <= 800 && point.y >= 0 && point.y <= 500)
            << key << " " << points[0].second << ": " << point.x << " " << point.y;
      }
      EXPECT_GE(svg.words().size(), 4u) << points[0].second;
    }
  }
}

TEST(CurvePicture, WordsDoNotTouchEachOther) {
  const Curve curve{"loss",
                    "run",
                    {{100000000000, 123456.25}, {100000000009, 123456.75}},
                    {{100000000002, 123456.5}}};
  const Svg svg = drawn(curve);
  EXPECT_THAT(svg.words_that_touch(), IsEmpty());
  EXPECT_GE(svg.words().size(), 9u);
}

TEST(CurvePicture, ALongNameOfARunIsCutAtThePage) {
  for (const Point& point : drawn({"loss", std::string(300, 'W'), zigzag(3)}).all_points())
    ASSERT_LE(point.x, 800);
}

TEST(CurvePicture, ANameOfARunMayHoldAnything) {
  const Svg svg =
      drawn({"loss", "a<b>&\"c\" \xff\x01\n\U0010FFFD\xF0\x93\x82\x80 end", {{1, 1}, {2, 2}}});
  EXPECT_THAT(svg.title(), HasSubstr("a<b>&\"c\" "));
  EXPECT_THAT(svg.title(), HasSubstr("  ?"));  // control characters; nothing has this glyph
  EXPECT_THAT(svg.title(), HasSubstr(" end"));
}

TEST(CurvePicture, ThePngIsItsPictureAtTwicePixels) {
  const std::string content = curve_picture({"loss", "run", zigzag(9)}, PictureFormat::kPng, false);
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  ASSERT_TRUE(png_image_begin_read_from_memory(&image, content.data(), content.size()))
      << image.message;
  image.format = PNG_FORMAT_RGB;
  std::vector<uint8_t> pixels(PNG_IMAGE_SIZE(image));
  ASSERT_TRUE(png_image_finish_read(&image, nullptr, pixels.data(), 0, nullptr)) << image.message;
  EXPECT_EQ(image.width, 1600u);
  EXPECT_EQ(image.height, 1000u);
  const auto count = [&](uint8_t red, uint8_t green, uint8_t blue) {
    int found = 0;
    for (size_t i = 0; i < pixels.size(); i += 3)
      found += std::abs(pixels[i] - red) <= 1 && std::abs(pixels[i + 1] - green) <= 1 &&
               std::abs(pixels[i + 2] - blue) <= 1;
    return found;
  };
  // The colours of mean and records; most of the page stays white.
  EXPECT_GT(count(230, 74, 26), 2000);
  EXPECT_GT(count(255, 184, 153), 2000);
  EXPECT_GT(count(255, 255, 255), 1200000);
  EXPECT_EQ(count(26, 107, 179), 0);
}

TEST(CurvePicture, TheMeanFadesByItsFactorAndStartsAtTheFirstValue) {
  // (4·0.5 + 1) / 1.5 = 2; (3·0.5 + 2) / 1.75 = 2
  const std::vector<double> means = smoothed(std::vector<double>{4, 1, 2}, 0.5);
  EXPECT_THAT(means, ElementsAre(4, 2, 2));
}

TEST(Axis, TicksAreRoundNumbers) {
  EXPECT_THAT(axis_ticks(0.7, 3.4, 6), ElementsAre(1.0, 1.5, 2.0, 2.5, 3.0));
  EXPECT_THAT(axis_ticks(-1, 1, 4), ElementsAre(-1, -0.5, 0, 0.5, 1));
}

TEST(Axis, TicksAreWrittenAsShortAsTellsThemApart) {
  using Ticks = std::vector<double>;
  EXPECT_THAT(tick_texts(Ticks{-0.5, 0, 0.5}), ElementsAre("-0.5", "0", "0.5"));
  EXPECT_THAT(tick_texts(Ticks{1.25, 1.3}), ElementsAre("1.25", "1.30"));
  EXPECT_THAT(tick_texts(Ticks{0, 2000, 4000}), ElementsAre("0", "2000", "4000"));
  EXPECT_THAT(tick_texts(Ticks{0, 5000, 10000}), ElementsAre("0", "5k", "10k"));
  EXPECT_THAT(tick_texts(Ticks{1e6, 1.5e6}), ElementsAre("1.0M", "1.5M"));
  EXPECT_THAT(tick_texts(Ticks{0, 5e-5, 1e-4}), ElementsAre("0", "5e-5", "1e-4"));
  EXPECT_THAT(tick_texts(Ticks{9.5e-5, 1e-4, 1.05e-4}), ElementsAre("9.5e-5", "1e-4", "1.05e-4"));
  EXPECT_THAT(tick_texts(Ticks{-1e300, 1e300}), ElementsAre("-1e300", "1e300"));
  EXPECT_THAT(tick_texts(Ticks{}), IsEmpty());
}

class RunPictures : public ::testing::Test {
 protected:
  RunPictures() {
    MetricsLog log(folder_ / "logging.jsonl", 0);
    for (int step = 1; step <= 3; ++step) {
      log.append({{"loss", 3.0 / step},
                  {"acc", 0.5},
                  {"memory(GiB)", 1.5},
                  {"epoch", step},
                  {"global_step", step}});
    }
    log.append({{"eval_loss", 1.0}, {"global_step", 3}});
    log.append({{"summary", 1}});
    // The machine's fonts are looked for once a process.
    GTEST_FLAG_SET(death_test_style, "threadsafe");
  }
  std::vector<fs::path> draw() const {
    return draw_run_pictures(folder_ / "logging.jsonl", folder_ / "images", "run 7");
  }
  Svg loss() const { return Svg(read_file(folder_ / "images/train_loss.svg")); }
  /// A configuration that knows the fonts of `directories` alone.
  std::string font_configuration(const std::vector<std::string>& directories) const {
    std::string text = "<fontconfig>";
    for (const std::string& directory : directories) text += "<dir>" + directory + "</dir>";
    write_file_atomic(folder_ / "fonts.conf", text + "</fontconfig>");
    return folder_ / "fonts.conf";
  }
  /// In a process of its own: exits with 0 if the loss's picture is as expected.
  template <typename Check>
  void draw_and_exit(const std::string& configuration, const char* language, Check as_expected) {
    if (!configuration.empty()) ::setenv("FONTCONFIG_FILE", configuration.c_str(), 1);
    ::setenv("DANLU_LANG", language, 1);
    log::set_level(log::Level::kInfo);
    draw();
    const bool good = as_expected(loss()) && !fs::exists(folder_ / "images/.fontconfig");
    fs::remove_all(folder_ / "");
    std::exit(good ? 0 : 1);
  }
  const danlu::test::TemporaryDirectory folder_;
};

TEST_F(RunPictures, EverySeriesOfALogGetsOneTheLossFirst) {
  EXPECT_THAT(draw(), ElementsAre(folder_ / "images/train_loss.png",
                                  folder_ / "images/train_memory_GiB_.png"));
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder_ / "images"))
    names.push_back(entry.path().filename());
  EXPECT_THAT(names,
              testing::UnorderedElementsAre("train_loss.png", "train_loss.svg",
                                            "train_memory_GiB_.png", "train_memory_GiB_.svg"));
  EXPECT_EQ(loss().dots(kEvaluationStroke), 2u);  // the log's one, and the legend's
  EXPECT_THAT(loss().title(), HasSubstr(" · run 7"));
}

TEST_F(RunPictures, OneRecordOfTheLossIsEnough) {
  write_file_atomic(folder_ / "logging.jsonl", "{\"loss\":1,\"lr\":1,\"global_step\":1}\n");
  EXPECT_THAT(draw(), ElementsAre(folder_ / "images/train_loss.png"));
}

TEST_F(RunPictures, AMachineWithoutFontsDrawsTheCurvesAndSaysOnlyThat) {
  const auto curve_alone = [](const Svg& svg) {
    return svg.longest(kRawStroke).size() == 3 && svg.glyphs() == 0 &&
           svg.title() == "training loss · run 7";
  };
  for (const std::string& configuration :
       {font_configuration({}), (folder_ / "not there").string()}) {
    EXPECT_EXIT(draw_and_exit(configuration, "zh", curve_alone), testing::ExitedWithCode(0),
                StrEq("图片：本机没有字体，图中不含文字（可安装 fonts-dejavu-core）\n"));
  }
}

TEST_F(RunPictures, WithoutChineseGlyphsLabelsAreEnglish) {
  const std::string dejavu = "/usr/share/fonts/truetype/dejavu";
  if (!fs::exists(dejavu)) GTEST_SKIP() << "no fonts-dejavu-core";
  const auto english = [](const Svg& svg) {
    return svg.title() == "training loss · run 7" && svg.glyphs() > 50;
  };
  EXPECT_EXIT(draw_and_exit(font_configuration({dejavu}), "zh", english),
              testing::ExitedWithCode(0),
              StrEq("图片：没有含中文的字体，标签使用英文（可安装 fonts-wqy-microhei）\n"));
}

TEST_F(RunPictures, LabelsAreChineseWhereMessagesAreAndGlyphsAreThere) {
  if (!fonts_show(chinese_labels())) GTEST_SKIP() << "no font with Chinese glyphs";
  const auto has_words = [](const char* name, const char* step) {
    return [=](const Svg& svg) {
      return svg.title() == std::string(name) + " · run 7" && svg.glyphs() > 30 &&
             std::ranges::count(svg.words(), step) == 1;
    };
  };
  EXPECT_EXIT(draw_and_exit("", "zh", has_words("训练损失", "步数")), testing::ExitedWithCode(0),
              StrEq(""));
  EXPECT_EXIT(draw_and_exit("", "en", has_words("training loss", "step")),
              testing::ExitedWithCode(0), StrEq(""));
}

}  // namespace danlu::train::curve_picture_test
