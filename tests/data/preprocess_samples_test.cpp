// Raw rows to training samples: open_or_build_samples.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "data/tokenized_dataset.h"
#include "preprocess_fakes.h"
#include "support/shared_data.h"

namespace danlu::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

SampleSpec spec_for(const TestDirectory& directory, const std::string& dataset) {
  SampleSpec spec;
  spec.datasets = {dataset};
  spec.tokenizer = std::make_shared<ByteTokenizer>();
  spec.chat_encoder = std::make_shared<ByteChatEncoder>();
  spec.cache_dir = directory / "cache";
  spec.num_workers = 2;
  return spec;
}

TEST(OpenOrBuildSamples, TokenisesAlpacaRowsWithTheMaskOfTheTemplate) {
  const TestDirectory directory;
  directory.write("a.json", R"([{"instruction":"ab","input":"c","output":"d"},
                                {"instruction":"x","input":"","output":"yz"}])");
  const auto samples = open_or_build_samples(spec_for(directory, directory / "a.json"));
  ASSERT_EQ(samples.train->size(), 2);
  const Sample first = samples.train->get(0);
  // u "ab\nc" a "d" </s>; every id is byte + 10.
  EXPECT_THAT(first.ids, ElementsAre('u' + 10, 'a' + 10, 'b' + 10, '\n' + 10, 'c' + 10, 'a' + 10,
                                     'd' + 10, 2));
  EXPECT_THAT(first.labels, ElementsAre(-100, -100, -100, -100, -100, -100, 'd' + 10, 2));
  EXPECT_THAT(first.segments, ElementsAre(0));
  EXPECT_EQ(samples.report.rows_kept, 2);
  EXPECT_EQ(samples.report.target_tokens, 2 + 3);
  EXPECT_THAT(samples.report.sample, HasSubstr("[LABELS] [-100 * 6]d<2>"));
}

TEST(OpenOrBuildSamples, ReadsAllOfAlpacaAndDropsOnlyItsEmptyAnswers) {
  DANLU_REQUIRES_SHARED();
  const TestDirectory directory;
  const auto file = test::unpacked("instruct") / "alpaca_data.json";
  const auto samples = open_or_build_samples(spec_for(directory, file.string()));
  EXPECT_EQ(samples.report.rows_read, 52002);
  for (const auto& reason : samples.report.dropped) {
    fmt::print("{} {} {}\n", reason.reason, reason.count, fmt::join(reason.examples, " | "));
  }
}

}  // namespace
}  // namespace danlu::data
