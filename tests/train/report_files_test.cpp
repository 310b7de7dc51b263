#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <fstream>

#include "base/file.h"
#include "support/temporary_directory.h"
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

}  // namespace danlu::train::report_files_test
