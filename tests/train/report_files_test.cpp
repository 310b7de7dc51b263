#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <png.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <limits>

#include "base/file.h"
#include "support/temporary_directory.h"
#include "train/report/bitmap_font.h"
#include "train/report/curve_picture.h"
#include "train/report/metrics_log.h"
#include "train/report/model_card.h"
#include "train/report/tfevents.h"

namespace danlu::train::report_files_test {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class ReportFiles : public ::testing::Test {
 protected:
  const danlu::test::TemporaryDirectory folder_;
};

/// Standard output of a command; "" with a failure if it does not exit with 0.
std::string output_of(const std::string& command) {
  FILE* pipe = ::popen(command.c_str(), "r");
  std::string text;
  char chunk[4096];
  for (size_t got; (got = std::fread(chunk, 1, sizeof chunk, pipe)) > 0;) text.append(chunk, got);
  EXPECT_EQ(::pclose(pipe), 0) << command << "\n" << text;
  return text;
}

TEST(Crc32c, EqualsTheVectorsOfRfc3720) {
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(crc32c("123456789"), 0xe3069283u);
}

TEST_F(ReportFiles, AnotherReaderFindsTheScalarsInTheEventFile) {
  if (std::system("python3 -c '' 2>/dev/null") != 0)
    GTEST_SKIP() << "no python3 for the second reader";
  TfEventsWriter writer(folder_ / "runs", 300);
  writer.add_scalars(301, {{"train/loss", 2.5}, {"train/lr", 1.0 / 1024}});
  writer.add_scalars(70000, {{"eval/loss", -3}});
  EXPECT_THAT(writer.path().filename().string(), StartsWith("events.out.tfevents."));
  EXPECT_EQ(output_of("python3 '" DANLU_SOURCE_DIR "/tests/train/read_tfevents.py' '" +
                      writer.path().string() + "'"),
            "version brain.Event:2\nsession 301 1\nscalar 301 train/loss 2.5\nscalar 301 train/lr "
            "0.0009765625\n"
            "scalar 70000 eval/loss -3.0\n");
}

TEST_F(ReportFiles, AResumedLogDropsWhatTheRunWillRepeat) {
  const fs::path path = folder_ / "logging.jsonl";
  {
    MetricsLog log(path, 0);
    log.append({{"loss", 3.0}, {"global_step", 5}});
    log.append({{"eval_loss", 2.9}, {"global_step", 5}});
    log.append({{"loss", 2.0}, {"global_step", 10}});
    log.append({{"summary", true}});
  }
  std::ofstream(path, std::ios::app) << "{\"loss\": 1.0, \"global_st";  // the machine died here
  {
    MetricsLog log(path, 5);
    log.append({{"loss", 2.1}, {"global_step", 10}});
  }
  EXPECT_EQ(read_file(path),
            "{\"loss\":3.0,\"global_step\":5}\n{\"eval_loss\":2.9,\"global_step\":5}\n{\"loss\":2."
            "1,\"global_step\":10}\n");
}

TEST_F(ReportFiles, ANewRunBeginsAnEmptyLog) {
  write_file_atomic(folder_ / "l", "{\"loss\":1,\"global_step\":1}\n");
  MetricsLog log(folder_ / "l", 0);
  EXPECT_EQ(read_file(folder_ / "l"), "");
}

TEST_F(ReportFiles, ValuesThatAreNotFiniteComeBackAsGaps) {
  MetricsLog log(folder_ / "l", 0);
  log.append({{"loss", std::nan("")}, {"note", "text"}, {"global_step", 1}});
  log.append({{"loss", 4.0}, {"global_step", 2}});
  const auto series = read_metrics(folder_ / "l");
  ASSERT_EQ(series.size(), 1u);
  const auto& loss = series.at("loss");
  EXPECT_TRUE(std::isnan(loss[0].second));
  EXPECT_EQ(loss[1], (std::pair<int64_t, double>(2, 4.0)));
}

bool same(Color a, Color b) { return a.red == b.red && a.green == b.green && a.blue == b.blue; }

int count_pixels(const Canvas& canvas, Color color, int left, int top, int right, int bottom) {
  int count = 0;
  for (int y = top; y < bottom; ++y) {
    for (int x = left; x < right; ++x) count += same(canvas.pixel(x, y), color);
  }
  return count;
}

TEST(CurvePicture, AFallingLossIsHighOnTheLeftAndLowOnTheRight) {
  std::vector<std::pair<int64_t, double>> points;
  for (int step = 1; step <= 100; ++step) points.emplace_back(step, 4.0 - step * 0.03);
  const Canvas canvas = draw_curve("train/loss", points);
  const Color smooth{0xFF, 0x70, 0x43};
  EXPECT_EQ(canvas.width(), 800);
  EXPECT_EQ(canvas.height(), 500);
  EXPECT_GT(count_pixels(canvas, smooth, 101, 59, 250, 240), 100);
  EXPECT_EQ(count_pixels(canvas, smooth, 101, 250, 250, 430), 0);
  EXPECT_GT(count_pixels(canvas, smooth, 620, 250, 772, 430), 100);
  EXPECT_EQ(count_pixels(canvas, smooth, 620, 59, 772, 240), 0);
}

TEST(CurvePicture, DrawsBothCurvesInTheirColoursOrOneAlone) {
  std::vector<std::pair<int64_t, double>> points;
  for (int step = 0; step < 50; ++step) points.emplace_back(step, step % 2);
  const Color raw{0xFF, 0xE2, 0xD9};
  const int both = count_pixels(draw_curve("x", points), raw, 101, 59, 772, 430);
  const int alone = count_pixels(draw_curve("x", points, false), raw, 101, 59, 772, 430);
  // Smoothed edges of the strong colour hit the pale one by chance, in a few pixels.
  EXPECT_GT(both, 5000);
  EXPECT_LT(alone, 500);
}

TEST(CurvePicture, SurvivesOnePointEqualPointsAndNoFiniteOne) {
  const double nan = std::nan("");
  EXPECT_GT(count_pixels(draw_curve("x", std::vector<std::pair<int64_t, double>>{{1, 5}}),
                         {0xFF, 0x70, 0x43}, 0, 59, 800, 430),
            0);
  draw_curve("x", std::vector<std::pair<int64_t, double>>{{1, 0}, {2, 0}});
  draw_curve("x", std::vector<std::pair<int64_t, double>>{{1, nan}, {2, nan}});
  draw_curve("x", std::vector<std::pair<int64_t, double>>{});
}

TEST(CurvePicture, TheMeanFadesByItsFactorAndStartsAtTheFirstValue) {
  // (4·0.5 + 1) / 1.5 = 2; (3·0.5 + 2) / 1.75 = 2
  const std::vector<double> means = smoothed(std::vector<double>{4, 1, 2}, 0.5);
  EXPECT_THAT(means, ElementsAre(4, 2, 2));
}

TEST(CurvePicture, TicksAreRoundNumbers) {
  EXPECT_THAT(axis_ticks(0.7, 3.4, 6), ElementsAre(1.0, 1.5, 2.0, 2.5, 3.0));
  EXPECT_THAT(axis_ticks(-1, 1, 4), ElementsAre(-1, -0.5, 0, 0.5, 1));
}

TEST(BitmapFont, EveryPrintableCharacterHasAFormOfItsOwn) {
  for (int a = 0x21; a < 0x7f; ++a) {
    EXPECT_NE(glyph_of(static_cast<char>(a)).rows, glyph_of(' ').rows) << static_cast<char>(a);
    for (int b = a + 1; b < 0x7f; ++b) {
      EXPECT_NE(glyph_of(static_cast<char>(a)).rows, glyph_of(static_cast<char>(b)).rows)
          << static_cast<char>(a) << static_cast<char>(b);
    }
  }
  EXPECT_EQ(glyph_of('\xe4').rows, glyph_of('\x01').rows);
}

TEST_F(ReportFiles, ThePngIsReadableAndCarriesItsResolution) {
  Canvas canvas(3, 2);
  canvas.fill_rectangle(1, 0, 2, 1, {10, 20, 30});
  canvas.write_png(folder_ / "a.png", 100);
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  ASSERT_TRUE(png_image_begin_read_from_file(&image, (folder_ / "a.png").c_str())) << image.message;
  image.format = PNG_FORMAT_RGB;
  std::vector<uint8_t> pixels(PNG_IMAGE_SIZE(image));
  ASSERT_TRUE(png_image_finish_read(&image, nullptr, pixels.data(), 0, nullptr)) << image.message;
  EXPECT_EQ(image.width, 3u);
  EXPECT_EQ(image.height, 2u);
  EXPECT_THAT(std::vector<uint8_t>(pixels.begin(), pixels.begin() + 6),
              ElementsAre(255, 255, 255, 10, 20, 30));
  // 100 dots an inch are 3937 a metre: the pHYs chunk says 00000f61 twice, unit 1.
  EXPECT_THAT(read_file(folder_ / "a.png"),
              HasSubstr(std::string("pHYs\x00\x00\x0f\x61\x00\x00\x0f\x61\x01", 13)));
}

TEST(ModelCard, FrontMatterIsYamlWhateverTheNamesHold) {
  ModelCard card;
  card.title = "my: model";
  card.base_model = "Qwen/Qwen2.5-0.5B: \"x\"";
  card.adapter = true;
  card.task = "sft";
  card.datasets = {{"a|b.jsonl", 52002, "00ff"}};
  card.hyperparameters = {{"learning_rate", "0.0001"}};
  card.results = {{"eval loss", "1.25"}};
  card.version = "0.1.0";
  card.next_command = "danlu chat --adapters out";
  const std::string text = model_card_text(card);
  EXPECT_THAT(
      text, StartsWith("---\nbase_model: \"Qwen/Qwen2.5-0.5B: \\\"x\\\"\"\nlibrary_name: peft\n"));
  EXPECT_THAT(text, HasSubstr("license: unknown\n"));
  EXPECT_THAT(text, HasSubstr("datasets:\n- \"a|b.jsonl\"\n---\n"));
  EXPECT_THAT(text, HasSubstr("| a\\|b.jsonl | 52002 | `00ff` |"));
  EXPECT_THAT(text, HasSubstr("| learning_rate | 0.0001 |"));
  EXPECT_THAT(text, HasSubstr("```\ndanlu chat --adapters out\n```"));
}

TEST_F(ReportFiles, EverySeriesOfALogGetsAPictureTheLossFirst) {
  {
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
  }
  const auto pictures = draw_run_pictures(folder_ / "logging.jsonl", folder_ / "images");
  EXPECT_THAT(pictures, ElementsAre(folder_ / "images/train_loss.png",
                                    folder_ / "images/train_memory_GiB_.png"));
  EXPECT_TRUE(fs::exists(pictures[0]));
}

}  // namespace danlu::train::report_files_test
