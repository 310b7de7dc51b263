// Rows that cannot be used: dropped and counted up to a share, an error above it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/preprocess.h"
#include "data/preprocess_run.h"
#include "data/tokenized_dataset.h"
#include "preprocess_fakes.h"

namespace danlu::data {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kMessages =
    R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]})"
    "\n";

std::string alpaca(int count) {
  std::string rows;
  for (int i = 0; i < count; ++i)
    rows += fmt::format("{{\"instruction\":\"q{}\",\"input\":\"\",\"output\":\"a\"}}\n", i);
  return rows;
}

class DroppedRows : public ::testing::Test {
 protected:
  SampleSpec samples_of(const std::string& name) const {
    SampleSpec spec;
    spec.datasets = {directory_ / name};
    spec.tokenizer = std::make_shared<ByteTokenizer>();
    spec.chat_encoder = std::make_shared<ByteChatEncoder>();
    spec.cache_dir = directory_ / "cache";
    spec.num_workers = 2;
    return spec;
  }
  PreprocessSpec files_of(const std::string& name) const {
    PreprocessSpec spec;
    spec.inputs = {directory_ / name};
    spec.output_prefix = directory_ / "p";
    spec.show_progress = false;
    spec.num_workers = 2;
    return spec;
  }
  static PreprocessText fakes() {
    return {[] { return std::make_shared<ByteTokenizer>(); },
            [](auto) { return std::make_shared<ByteChatEncoder>(); }};
  }
  TestDirectory directory_;
};

TEST_F(DroppedRows, OneRowOfAnotherLayoutDoesNotSilenceSixty) {
  for (const std::string& rows : {alpaca(60) + kMessages, kMessages + alpaca(60)}) {
    directory_.write("a.jsonl", rows);
    EXPECT_THAT(error_text<DataError>([&] { preprocess(files_of("a.jsonl"), fakes()); }),
                AllOf(HasSubstr("60 of 61 rows would be dropped, more than the share of 0.5"),
                      HasSubstr("detected: messages"),
                      HasSubstr("60 rows: column \"messages\" is missing"), HasSubstr("a.jsonl:")));
  }
  PreprocessSpec asked_for = files_of("a.jsonl");
  asked_for.max_dropped_ratio = 1;
  EXPECT_EQ(preprocess(asked_for, fakes()).report.rows_kept, 1);
  // The files are there, but not what was asked for; they stay.
  EXPECT_THAT(error_text<DataError>([&] { preprocess(files_of("a.jsonl"), fakes()); }),
              HasSubstr("60 of 61 rows"));
  EXPECT_TRUE(preprocess(asked_for, fakes()).up_to_date);
}

TEST_F(DroppedRows, HalfOfThemIsNotMoreThanHalf) {
  directory_.write("a.jsonl", alpaca(2) + "{\"instruction\":\"q\"}\n{\"instruction\":7}\n");
  const auto result = preprocess(files_of("a.jsonl"), fakes());
  EXPECT_EQ(result.report.rows_dropped(), 2);
  EXPECT_EQ(result.report.dropped_ratio, 0.5);
}

TEST_F(DroppedRows, EachDataSetIsJudgedByItself) {
  directory_.write("a.jsonl", alpaca(300));
  directory_.write("b.jsonl", alpaca(60) + kMessages);
  SampleSpec spec = samples_of("a.jsonl");
  spec.datasets.push_back(directory_ / "b.jsonl");
  EXPECT_THAT(error_text<DataError>([&] { open_or_build_samples(spec); }),
              AllOf(HasSubstr("b.jsonl: 1 jsonl file"), HasSubstr("60 of 61 rows")));
  spec.max_dropped_ratio = 0.99;
  EXPECT_EQ(open_or_build_samples(spec).report.rows_kept, 301);
}

TEST_F(DroppedRows, TokensFromTheCacheAreJudgedTheSame) {
  directory_.write("a.jsonl", alpaca(60) + kMessages);
  SampleSpec lenient = samples_of("a.jsonl");
  lenient.max_dropped_ratio = 1;
  open_or_build_samples(lenient);
  EXPECT_THAT(error_text<DataError>([&] { open_or_build_samples(samples_of("a.jsonl")); }),
              HasSubstr("60 of 61 rows would be dropped"));
  EXPECT_EQ(open_or_build_samples(lenient).report.rows_kept, 1);
}

TEST_F(DroppedRows, ValidationIsJudgedToo) {
  directory_.write("a.jsonl", alpaca(4));
  directory_.write("val.jsonl", alpaca(3) + kMessages);
  SampleSpec spec = samples_of("a.jsonl");
  spec.val_datasets = {directory_ / "val.jsonl"};
  EXPECT_THAT(error_text<DataError>([&] { open_or_build_samples(spec); }),
              HasSubstr("3 of 4 rows would be dropped"));
}

// What a killed run had passed over, a run that allows less does not go on from.
TEST_F(DroppedRows, UnfinishedWorkIsJudgedByWhoFinishesIt) {
  directory_.write("a.jsonl", alpaca(3) + kMessages);
  directory_.write("b.jsonl", alpaca(3));
  const auto plan = plan_datasets({directory_ / "a.jsonl", directory_ / "b.jsonl"}, {});
  EncodeSettings settings;
  settings.tokenizer = std::make_shared<ByteTokenizer>();
  settings.chat_encoder = std::make_shared<ByteChatEncoder>();
  PreprocessReport before;
  before.rows_read = 4;
  before.rows_kept = 1;
  before.dropped_ratio = 0.75;
  RunSettings run;
  run.show_progress = false;
  TokenStore store(directory_ / "store", "key", 2);
  store.commit({{"dataset", 1},
                {"row", 0},
                {"before", before.to_json()},
                {"report", PreprocessReport().to_json()}});
  EXPECT_THAT(error_text<DataError>([&] { encode_datasets(plan, settings, run, &store); }),
              HasSubstr("3 of 4 rows would be dropped"));
}

TEST_F(DroppedRows, WithoutAValueAreCountedAsWhatTheyAre) {
  directory_.write("a.jsonl",
                   "{\"instruction\":null,\"input\":null,\"output\":null}\n{}\n" + alpaca(2));
  const auto report = preprocess(files_of("a.jsonl"), fakes()).report;
  ASSERT_EQ(report.dropped.size(), 1u);
  EXPECT_EQ(report.dropped[0].reason, "no column has a value");
  EXPECT_EQ(report.dropped[0].count, 2);
  EXPECT_THAT(report.dropped[0].examples[0], HasSubstr("a.jsonl:1"));
}

// They say nothing about the layout either, however many stand first.
TEST_F(DroppedRows, WithoutAValueDecideNoLayout) {
  std::string rows = "instruction,output\n";
  for (int i = 0; i < 100; ++i) rows += ",\n";
  directory_.write("a.csv", rows);
  EXPECT_THAT(error_text<DataError>([&] { preprocess(files_of("a.csv"), fakes()); }),
              HasSubstr("no column of its 100 rows has a value"));
  for (int i = 0; i < 100; ++i) rows += "q,a\n";
  directory_.write("a.csv", rows);
  EXPECT_EQ(preprocess(files_of("a.csv"), fakes()).report.rows_kept, 100);
}

TEST_F(DroppedRows, BlankLinesOfTextAreNone) {
  directory_.write("a.txt", "fox\n\n\n\n\ndog\n");
  const auto report = preprocess(files_of("a.txt"), fakes()).report;
  ASSERT_EQ(report.dropped.size(), 1u);
  EXPECT_EQ(report.dropped[0].reason, "blank line");
  EXPECT_EQ(report.dropped_ratio, 0);
}

TEST_F(DroppedRows, ReportsOfEarlierVersionsAreJudgedByTheirTotals) {
  Json json = PreprocessReport().to_json();
  json.erase("dropped_ratio");
  json["rows_read"] = 8;
  json["rows_kept"] = 2;
  EXPECT_EQ(PreprocessReport::from_json(json).dropped_ratio, 0.75);
}

}  // namespace
}  // namespace danlu::data
